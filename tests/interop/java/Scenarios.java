import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache's own client against a broker: `java Scenarios.java BOOTSTRAP PREFIX`.
 * Every scenario runs in this one JVM, on topics whose names begin with PREFIX, and prints one line of JSON:
 * {"name": ..., "error": null or what went wrong}. Python turns the lines into tests.
 */
public class Scenarios {
    static final long T0 = 1_700_000_000_000L;
    static final Duration CALL = Duration.ofSeconds(30);
    static final ObjectMapper JSON = new ObjectMapper();

    interface Scenario { void run() throws Exception; }

    static String bootstrap;
    static String prefix;
    static int topics = 0;
    static Admin admin;

    // What the scenarios are made of

    static void check(boolean held, String what) {
        if (!held) throw new AssertionError(what);
    }

    static void equal(Object wanted, Object got, String what) {
        check(Objects.deepEquals(wanted, got), what + ": wanted " + show(wanted) + ", got " + show(got));
    }

    static String show(Object value) {
        return value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
    }

    static <E extends Throwable> E refused(Class<E> kind, Scenario call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (kind.isInstance(cause)) return kind.cast(cause);
            throw new AssertionError("wanted " + kind.getSimpleName() + ", got " + cause, cause);
        }
        throw new AssertionError("wanted " + kind.getSimpleName() + ", got no error");
    }

    interface Check { boolean holds() throws Exception; }

    static void eventually(String what, Check condition) throws Exception {
        long deadline = System.nanoTime() + CALL.toNanos();
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "still not so: " + what);
            Thread.sleep(30);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String name() {
        return prefix + "-" + (++topics);
    }

    static String topic(int partitions, String... config) throws Exception {
        String name = name();
        Map<String, String> settings = new HashMap<>();
        for (int i = 0; i < config.length; i += 2) settings.put(config[i], config[i + 1]);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(settings))).all().get();
        Map<TopicPartition, OffsetSpec> all = new HashMap<>();
        for (int p = 0; p < partitions; p++) all.put(new TopicPartition(name, p), OffsetSpec.latest());
        admin.listOffsets(all).all().get();
        return name;
    }

    static KafkaProducer<byte[], byte[]> producer(Object... config) {
        return new KafkaProducer<>(settings(config), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Object... config) {
        Properties settings = settings("auto.offset.reset", "none", "enable.auto.commit", "false");
        settings.putAll(settings(config));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Properties settings(Object... config) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < config.length; i += 2) settings.put(config[i], String.valueOf(config[i + 1]));
        return settings;
    }

    static List<ConsumerRecord<byte[], byte[]>> take(Consumer<byte[], byte[]> client, int count) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        long deadline = System.nanoTime() + CALL.toNanos();
        while (got.size() < count) {
            check(System.nanoTime() < deadline, got.size() + " of " + count + " messages");
            client.poll(Duration.ofMillis(500)).forEach(got::add);
        }
        return got;
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String topic, int count, Object... config) {
        try (var client = consumer(config)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            client.assign(List.of(partition));
            client.seek(partition, 0);
            return take(client, count);
        }
    }

    static void send(String topic, long[] stamps, Object... config) throws Exception {
        try (var client = producer(config)) {
            for (int i = 0; i < stamps.length; i++) {
                client.send(new ProducerRecord<>(topic, 0, stamps[i], null, bytes("" + i))).get();
            }
        }
    }

    // Publishing and consuming

    static void everyKindOfRecord(String codec) throws Exception {
        String topic = topic(1);
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            byte[] key = i % 7 == 0 ? null : bytes("k" + i);
            byte[] value = i % 11 == 0 ? null : bytes("value " + i + " ".repeat(i));
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, T0 + i, key, value);
            if (i % 3 == 0) record.headers().add("a", bytes("1")).add("a", bytes("2")).add("null", null).add("e", new byte[0]);
            sent.add(record);
        }
        try (var client = producer("compression.type", codec, "linger.ms", 5)) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (var record : sent) answers.add(client.send(record));
            for (int i = 0; i < answers.size(); i++) equal((long) i, answers.get(i).get().offset(), "offset");
        }
        var got = read(topic, 200);
        for (int i = 0; i < 200; i++) {
            var record = got.get(i);
            equal((long) i, record.offset(), "offset");
            equal(sent.get(i).key(), record.key(), "key " + i);
            equal(sent.get(i).value(), record.value(), "value " + i);
            equal(T0 + i, record.timestamp(), "timestamp " + i);
            equal(TimestampType.CREATE_TIME, record.timestampType(), "timestamp type");
            equal(Optional.of(0), record.leaderEpoch(), "leader epoch");
            equal(sent.get(i).headers().toArray(), record.headers().toArray(), "headers " + i);
        }
    }

    static void acks(String acks) throws Exception {
        String topic = topic(1);
        try (var client = producer("acks", acks, "enable.idempotence", acks.equals("all"))) {
            for (int i = 0; i < 100; i++) client.send(new ProducerRecord<>(topic, 0, null, bytes("" + i)));
        }
        var got = read(topic, 100);
        for (int i = 0; i < 100; i++) equal(bytes("" + i), got.get(i).value(), "value");
    }

    static void idempotentOrder() throws Exception {
        String topic = topic(1);
        int count = 5000;
        try (var client = producer("batch.size", 200, "linger.ms", 0, "max.in.flight.requests.per.connection", 5)) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (int i = 0; i < count; i++) answers.add(client.send(new ProducerRecord<>(topic, 0, null, bytes("" + i))));
            for (int i = 0; i < count; i++) equal((long) i, answers.get(i).get().offset(), "offset");
        }
        var got = read(topic, count);
        for (int i = 0; i < count; i++) equal(bytes("" + i), got.get(i).value(), "value");
    }

    static void logAppendTime() throws Exception {
        String topic = topic(1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        RecordMetadata answer;
        try (var client = producer("compression.type", "lz4")) {
            answer = client.send(new ProducerRecord<>(topic, 0, T0, null, bytes("x"))).get();
        }
        check(answer.timestamp() >= before && answer.timestamp() <= System.currentTimeMillis(), "timestamp of the answer");
        var record = read(topic, 1).get(0);
        equal(TimestampType.LOG_APPEND_TIME, record.timestampType(), "timestamp type");
        equal(answer.timestamp(), record.timestamp(), "timestamp");
    }

    static void large() throws Exception {
        String topic = topic(1, "max.message.bytes", "10485760");
        byte[] body = new byte[9_500_000];
        for (int i = 0; i < body.length; i++) body[i] = (byte) (i * 31 >> 3);
        try (var client = producer("max.request.size", 10_485_760)) {
            for (int i = 0; i < 3; i++) client.send(new ProducerRecord<>(topic, 0, bytes("" + i), body)).get();
        }
        var got = read(topic, 3, "max.partition.fetch.bytes", 1000, "fetch.max.bytes", 1000);
        for (int i = 0; i < 3; i++) {
            equal(bytes("" + i), got.get(i).key(), "key");
            check(Arrays.equals(body, got.get(i).value()), "value " + i);
        }
    }

    static void tooLarge() throws Exception {
        String topic = topic(1, "max.message.bytes", "1000");
        try (var client = producer()) {
            refused(RecordTooLargeException.class, () -> client.send(new ProducerRecord<>(topic, 0, null, new byte[2000])).get());
            equal(0L, client.send(new ProducerRecord<>(topic, 0, null, new byte[10])).get().offset(), "offset");
        }
    }

    static void badTimestamp() throws Exception {
        String topic = topic(1, "message.timestamp.after.max.ms", "1000");
        long future = System.currentTimeMillis() + 3_600_000;
        try (var client = producer("retries", 0)) {
            refused(InvalidTimestampException.class, () -> client.send(new ProducerRecord<>(topic, 0, future, null, bytes("x"))).get());
        }
    }

    static void unknownTopic() throws Exception {
        try (var client = producer("max.block.ms", 1500)) {
            refused(org.apache.kafka.common.errors.TimeoutException.class, () -> client.send(new ProducerRecord<>(name(), bytes("x"))).get());
        }
        try (var client = consumer()) {
            equal(List.of(), client.partitionsFor(name()), "partitions of an unknown topic");
        }
    }

    static void partitionsByKey() throws Exception {
        String topic = topic(4);
        Map<String, Integer> where = new HashMap<>();
        try (var client = producer()) {
            equal(4, client.partitionsFor(topic).size(), "partitions");
            for (int i = 0; i < 100; i++) {
                String key = "k" + i % 10;
                int partition = client.send(new ProducerRecord<>(topic, bytes(key), bytes("x"))).get().partition();
                equal(where.computeIfAbsent(key, k -> partition), partition, "partition of " + key);
            }
        }
        check(new HashSet<>(where.values()).size() > 1, "keys are spread");
    }

    static void seek() throws Exception {
        String topic = topic(1);
        send(topic, new long[50]);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var client = consumer("max.poll.records", 5)) {
            client.assign(List.of(partition));
            client.seek(partition, 40);
            equal(bytes("40"), take(client, 1).get(0).value(), "after seek");
            client.seekToBeginning(List.of(partition));
            equal(bytes("0"), take(client, 1).get(0).value(), "after seekToBeginning");
            client.seekToEnd(List.of(partition));
            equal(50L, client.position(partition), "position at the end");
            equal(0L, (long) client.currentLag(partition).orElse(0), "lag at the end");
            client.seek(partition, 99);
            refused(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> take(client, 1));
        }
    }

    static void offsets() throws Exception {
        String topic = topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, new long[] {T0, T0 + 1000, T0 + 9000, T0 + 3000});
        try (var client = consumer()) {
            equal(Map.of(partition, 0L), client.beginningOffsets(List.of(partition)), "beginning");
            equal(Map.of(partition, 4L), client.endOffsets(List.of(partition)), "end");
            var found = client.offsetsForTimes(Map.of(partition, T0 + 1500)).get(partition);
            equal(List.of(2L, T0 + 9000), List.of(found.offset(), found.timestamp()), "by time");
            equal(null, client.offsetsForTimes(Map.of(partition, T0 + 9001)).get(partition), "later than all");
        }
        equal(List.of(0L, -1L), asked(partition, OffsetSpec.earliest()), "earliest");
        equal(List.of(4L, -1L), asked(partition, OffsetSpec.latest()), "latest");
        equal(List.of(2L, T0 + 9000), asked(partition, OffsetSpec.maxTimestamp()), "max timestamp");
        equal(List.of(1L, T0 + 1000), asked(partition, OffsetSpec.forTimestamp(T0 + 1)), "timestamp");
        equal(List.of(0L, -1L), asked(partition, OffsetSpec.earliestLocal()), "earliest local");
        equal(List.of(-1L, -1L), asked(partition, OffsetSpec.latestTiered()), "latest tiered");
        String empty = topic(1);
        equal(List.of(-1L, -1L), asked(new TopicPartition(empty, 0), OffsetSpec.maxTimestamp()), "max timestamp of nothing");
    }

    static List<Long> asked(TopicPartition partition, OffsetSpec spec) throws Exception {
        var found = admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
        return List.of(found.offset(), found.timestamp());
    }

    static void longPoll() throws Exception {
        String topic = topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var client = consumer("fetch.max.wait.ms", 6_000, "fetch.min.bytes", 1); var sender = producer()) {
            sender.partitionsFor(topic);
            client.assign(List.of(partition));
            client.seek(partition, 0);
            equal(0, client.poll(Duration.ofMillis(300)).count(), "messages before any was sent");
            long started = System.nanoTime();
            sender.send(new ProducerRecord<>(topic, 0, null, bytes("x"))).get();
            take(client, 1);
            check(System.nanoTime() - started < 3_000_000_000L, "the waiting fetch was woken");
        }
    }

    static void minBytes() throws Exception {
        String topic = topic(1);
        send(topic, new long[3]);
        long started = System.nanoTime();
        read(topic, 3, "fetch.min.bytes", 100_000, "fetch.max.wait.ms", 700);
        check(System.nanoTime() - started > 600_000_000L, "too few bytes wait for fetch.max.wait.ms");
    }

    static void readCommitted() throws Exception {
        String topic = topic(1);
        send(topic, new long[10]);
        equal(10, read(topic, 10, "isolation.level", "read_committed").size(), "messages");
    }

    static void manyPartitions() throws Exception {
        String topic = topic(30);
        try (var client = producer("linger.ms", 5)) {
            for (int i = 0; i < 600; i++) client.send(new ProducerRecord<>(topic, i % 30, null, bytes("" + i)));
        }
        List<TopicPartition> all = new ArrayList<>();
        for (int p = 0; p < 30; p++) all.add(new TopicPartition(topic, p));
        try (var client = consumer("max.partition.fetch.bytes", 200, "fetch.max.bytes", 1000)) {
            client.assign(all);
            client.seekToBeginning(all);
            Set<String> seen = new HashSet<>();
            take(client, 600).forEach(record -> seen.add(new String(record.value())));
            equal(600, seen.size(), "different messages");
        }
    }

    // Topics

    static void createDescribeDelete() throws Exception {
        String topic = name();
        var made = admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "1234"))));
        Uuid id = made.topicId(topic).get();
        equal(3, made.numPartitions(topic).get(), "partitions");
        equal(1, made.replicationFactor(topic).get(), "replicas");
        equal("1234", made.config(topic).get().get("retention.ms").value(), "setting in the answer");
        eventually("described", () -> admin.listTopics().names().get().contains(topic));
        TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        equal(id, found.topicId(), "topic id");
        equal(3, found.partitions().size(), "partitions");
        for (var partition : found.partitions()) equal(1, partition.isr().size(), "in-sync replicas");
        equal(topic, admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name(), "name by id");
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        eventually("deleted", () -> !admin.listTopics().names().get().contains(topic));
        refused(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(topic)).all().get());
        refused(UnknownTopicIdException.class, () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        refused(UnknownTopicOrPartitionException.class, () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
    }

    static void createErrors() throws Exception {
        String topic = topic(1);
        refused(TopicExistsException.class, () -> create(new NewTopic(topic, 1, (short) 1)));
        refused(InvalidTopicException.class, () -> create(new NewTopic("bad name", 1, (short) 1)));
        refused(InvalidTopicException.class, () -> create(new NewTopic("..", 1, (short) 1)));
        refused(InvalidPartitionsException.class, () -> create(new NewTopic(name(), 0, (short) 1)));
        refused(InvalidReplicationFactorException.class, () -> create(new NewTopic(name(), 1, (short) 0)));
        refused(InvalidReplicationFactorException.class, () -> create(new NewTopic(name(), 1, (short) 3)));
        refused(InvalidConfigurationException.class, () -> create(new NewTopic(name(), 1, (short) 1).configs(Map.of("no.such", "1"))));
        refused(InvalidConfigurationException.class, () -> create(new NewTopic(name(), 1, (short) 1).configs(Map.of("retention.ms", "soon"))));
        refused(InvalidReplicaAssignmentException.class, () -> create(new NewTopic(name(), Map.of(0, List.of(77)))));
        refused(InvalidReplicaAssignmentException.class, () -> create(new NewTopic(name(), Map.of(1, List.of(brokerId())))));
        refused(InvalidReplicaAssignmentException.class, () -> create(new NewTopic(name(), Map.of(0, List.of(brokerId(), brokerId())))));
    }

    static void create(NewTopic topic) throws Exception {
        admin.createTopics(List.of(topic)).all().get();
    }

    static int brokerId() throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    static void createDefaults() throws Exception {
        var made = admin.createTopics(List.of(new NewTopic(prefix + "-defaults", Optional.empty(), Optional.empty())));
        equal(1, made.numPartitions(prefix + "-defaults").get(), "partitions");
        var placed = admin.createTopics(List.of(new NewTopic(prefix + "-placed", Map.of(0, List.of(brokerId()), 1, List.of(brokerId())))));
        equal(2, placed.numPartitions(prefix + "-placed").get(), "partitions by assignment");
    }

    static void validateOnly() throws Exception {
        String topic = name();
        var made = admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1)), new CreateTopicsOptions().validateOnly(true));
        made.all().get();
        equal(2, made.numPartitions(topic).get(), "partitions");
        check(!admin.listTopics().names().get().contains(topic), "nothing was made");
    }

    static void addPartitions() throws Exception {
        String topic = topic(2);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        eventually("four partitions", () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 4);
        refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get());
        refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get());
        refused(InvalidReplicaAssignmentException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(6, List.of(List.of(brokerId()))))).all().get());
        refused(UnknownTopicOrPartitionException.class, () -> admin.createPartitions(Map.of(name(), NewPartitions.increaseTo(4))).all().get());
    }

    static void describePages() throws Exception {
        String topic = topic(7);
        String other = topic(3);
        var options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
        var found = admin.describeTopics(List.of(topic, other), options).allTopicNames().get();
        equal(7, found.get(topic).partitions().size(), "partitions");
        equal(3, found.get(other).partitions().size(), "partitions");
    }

    // Settings

    static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    static Config config(ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    static void alter(String topic, String setting, String value, AlterConfigOp.OpType kind) throws Exception {
        var op = new AlterConfigOp(new ConfigEntry(setting, value), kind);
        admin.incrementalAlterConfigs(Map.of(resource(topic), List.of(op))).all().get();
    }

    static void topicSettings() throws Exception {
        String topic = topic(1, "retention.ms", "5000");
        Config found = config(resource(topic));
        ConfigEntry entry = found.get("retention.ms");
        equal("5000", entry.value(), "value");
        equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry.source(), "source");
        equal(ConfigEntry.ConfigType.LONG, entry.type(), "type");
        check(entry.documentation() != null && !entry.documentation().isEmpty(), "documentation");
        equal("retention.ms", entry.synonyms().get(0).name(), "first synonym");
        check(!entry.isReadOnly() && !entry.isSensitive(), "flags");
        equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, found.get("segment.bytes").source(), "source of a default");
        alter(topic, "retention.ms", "7000", AlterConfigOp.OpType.SET);
        eventually("set", () -> config(resource(topic)).get("retention.ms").value().equals("7000"));
        alter(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        eventually("appended", () -> config(resource(topic)).get("cleanup.policy").value().equals("delete,compact"));
        alter(topic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        eventually("subtracted", () -> config(resource(topic)).get("cleanup.policy").value().equals("compact"));
        alter(topic, "retention.ms", null, AlterConfigOp.OpType.DELETE);
        eventually("deleted", () -> config(resource(topic)).get("retention.ms").value().equals("604800000"));
    }

    static void badSettings() throws Exception {
        String topic = topic(1);
        refused(InvalidConfigurationException.class, () -> alter(topic, "no.such", "1", AlterConfigOp.OpType.SET));
        refused(InvalidConfigurationException.class, () -> alter(topic, "retention.ms", "soon", AlterConfigOp.OpType.SET));
        refused(InvalidConfigurationException.class, () -> alter(topic, "retention.ms", "1", AlterConfigOp.OpType.APPEND));
        refused(UnknownTopicOrPartitionException.class, () -> alter(name(), "retention.ms", "1", AlterConfigOp.OpType.SET));
        refused(UnknownTopicOrPartitionException.class, () -> config(resource(name())));
        var twice = List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("retention.ms", "2"), AlterConfigOp.OpType.SET));
        refused(InvalidRequestException.class, () -> admin.incrementalAlterConfigs(Map.of(resource(topic), twice)).all().get());
    }

    static void brokerSettings() throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.BROKER, "" + brokerId());
        Config found = config(resource);
        equal("1048588", found.get("message.max.bytes").value(), "message.max.bytes");
        equal(ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG, found.get("auto.create.topics.enable").source(), "source");
    }

    static void configResources() throws Exception {
        String topic = topic(1);
        var found = admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get();
        check(found.contains(resource(topic)), "the topic is listed");
        var all = admin.listConfigResources().all().get();
        check(all.contains(new ConfigResource(ConfigResource.Type.BROKER, "" + brokerId())), "the broker is listed");
    }

    // Records, logs, producers, cluster

    static void deleteRecords() throws Exception {
        String topic = topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        send(topic, new long[10]);
        equal(4L, trim(partition, 4), "low watermark");
        equal(List.of(4L, -1L), asked(partition, OffsetSpec.earliest()), "earliest");
        equal(4L, trim(partition, 2), "a lower offset moves nothing");
        equal(10L, trim(partition, -1), "up to the high watermark");
        refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, () -> trim(partition, 11));
    }

    static long trim(TopicPartition partition, long offset) throws Exception {
        var answer = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset)));
        return answer.lowWatermarks().get(partition).get().lowWatermark();
    }

    static void logDirs() throws Exception {
        String topic = topic(2);
        send(topic, new long[5]);
        var dirs = admin.describeLogDirs(List.of(brokerId())).allDescriptions().get().get(brokerId());
        equal(1, dirs.size(), "log directories");
        var dir = dirs.values().iterator().next();
        check(dir.replicaInfos().get(new TopicPartition(topic, 0)).size() > 0, "size of a partition");
        equal(0L, dir.replicaInfos().get(new TopicPartition(topic, 1)).size(), "size of an empty one");
        check(dir.totalBytes().getAsLong() > 0 && dir.usableBytes().getAsLong() > 0, "space on the volume");
    }

    static void producers() throws Exception {
        String topic = topic(1);
        send(topic, new long[] {T0, T0, T0});
        TopicPartition partition = new TopicPartition(topic, 0);
        var found = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        equal(1, found.size(), "active producers");
        equal(2, found.get(0).lastSequence(), "last sequence");
        equal(0, found.get(0).producerEpoch(), "epoch");
        equal(T0, found.get(0).lastTimestamp(), "last timestamp");
        check(found.get(0).currentTransactionStartOffset().isEmpty(), "no transaction");
    }

    static void cluster() throws Exception {
        var found = admin.describeCluster();
        equal(22, found.clusterId().get().length(), "length of the cluster id");
        equal(1, found.nodes().get().size(), "nodes");
        equal(bootstrap, found.nodes().get().iterator().next().host() + ":" + found.nodes().get().iterator().next().port(), "address");
        equal(brokerId(), found.controller().get().id(), "controller");
    }

    static void features() throws Exception {
        check(admin.describeFeatures().featureMetadata().get().supportedFeatures().containsKey("metadata.version"), "metadata.version");
    }

    // The list; its names are read from here by the Python side

    static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("records none", () -> everyKindOfRecord("none"));
        all.put("records gzip", () -> everyKindOfRecord("gzip"));
        all.put("records snappy", () -> everyKindOfRecord("snappy"));
        all.put("records lz4", () -> everyKindOfRecord("lz4"));
        all.put("records zstd", () -> everyKindOfRecord("zstd"));
        all.put("acks 0", () -> acks("0"));
        all.put("acks 1", () -> acks("1"));
        all.put("acks all", () -> acks("all"));
        all.put("idempotent order", Scenarios::idempotentOrder);
        all.put("log append time", Scenarios::logAppendTime);
        all.put("large messages", Scenarios::large);
        all.put("too large a message", Scenarios::tooLarge);
        all.put("bad timestamp", Scenarios::badTimestamp);
        all.put("unknown topic", Scenarios::unknownTopic);
        all.put("partitions by key", Scenarios::partitionsByKey);
        all.put("seek", Scenarios::seek);
        all.put("offsets", Scenarios::offsets);
        all.put("long poll", Scenarios::longPoll);
        all.put("min bytes", Scenarios::minBytes);
        all.put("read committed", Scenarios::readCommitted);
        all.put("many partitions", Scenarios::manyPartitions);
        all.put("create describe delete", Scenarios::createDescribeDelete);
        all.put("create errors", Scenarios::createErrors);
        all.put("create defaults", Scenarios::createDefaults);
        all.put("validate only", Scenarios::validateOnly);
        all.put("add partitions", Scenarios::addPartitions);
        all.put("describe in pages", Scenarios::describePages);
        all.put("topic settings", Scenarios::topicSettings);
        all.put("bad settings", Scenarios::badSettings);
        all.put("broker settings", Scenarios::brokerSettings);
        all.put("config resources", Scenarios::configResources);
        all.put("delete records", Scenarios::deleteRecords);
        all.put("log dirs", Scenarios::logDirs);
        all.put("producers", Scenarios::producers);
        all.put("cluster", Scenarios::cluster);
        all.put("features", Scenarios::features);
        return all;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        admin = Admin.create(settings("default.api.timeout.ms", 30_000));
        for (var entry : scenarios().entrySet()) {
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("name", entry.getKey());
            long started = System.nanoTime();
            try {
                entry.getValue().run();
                result.put("error", null);
            } catch (Throwable error) {
                StringBuilder where = new StringBuilder(error.toString());
                for (var frame : error.getStackTrace()) {
                    if (frame.getClassName().startsWith("Scenarios")) where.append(" < line ").append(frame.getLineNumber());
                }
                result.put("error", where.toString());
            }
            result.put("seconds", (System.nanoTime() - started) / 1e9);
            System.out.println(JSON.writeValueAsString(result));
        }
        admin.close(Duration.ofSeconds(2));
    }
}
