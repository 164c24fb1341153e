import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Share groups of Apache's own consumer: {@code java ShareScenarios.java BOOTSTRAP PREFIX}.
 * Every scenario runs in this one JVM, on topics and groups whose names begin with PREFIX, and prints one line of JSON:
 * {"name": ..., "error": null or what went wrong}. Python turns the lines into tests.
 */
public class ShareScenarios {
    static final Duration CALL = Duration.ofSeconds(30);
    static final Duration SOON = Duration.ofSeconds(1);
    static final Duration POLL = Duration.ofMillis(100);
    static final ObjectMapper JSON = new ObjectMapper();

    interface Scenario { void run() throws Exception; }

    static String bootstrap;
    static String prefix;
    static int names = 0;
    static Admin admin;

    static void equal(Object wanted, Object got, String what) {
        if (!Objects.equals(wanted, got)) throw new AssertionError(what + ": wanted " + wanted + ", got " + got);
    }

    static String name() {
        return prefix + "-" + (++names);
    }

    static String topic(int partitions) throws Exception {
        String name = name();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        var all = IntStream.range(0, partitions).boxed().collect(Collectors.toMap(p -> new TopicPartition(name, p), p -> OffsetSpec.latest()));
        admin.listOffsets(all).all().get();
        return name;
    }

    /** A group that begins with the earliest record, and has these settings. */
    static String group(String... settings) throws Exception {
        String name = name();
        List<String> all = new ArrayList<>(List.of("share.auto.offset.reset", "earliest"));
        all.addAll(List.of(settings));
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int i = 0; i < all.size(); i += 2)
            changes.add(new AlterConfigOp(new ConfigEntry(all.get(i), all.get(i + 1)), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, name), changes)).all().get();
        return name;
    }

    static KafkaProducer<String, String> producer(Object... config) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 100));
        for (int i = 0; i < config.length; i += 2) settings.put((String) config[i], config[i + 1]);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** One batch for each partition. */
    static void send(String topic, int partitions, int count) {
        try (var client = producer()) {
            for (int i = 0; i < count; i++) client.send(new ProducerRecord<>(topic, i % partitions, null, "" + i));
        }
    }

    static KafkaShareConsumer<String, String> member(String group, String topic, Object... config) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group));
        for (int i = 0; i < config.length; i += 2) settings.put((String) config[i], config[i + 1]);
        var client = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        client.subscribe(List.of(topic));
        return client;
    }

    static KafkaShareConsumer<String, String> explicit(String group, String topic, Object... config) {
        Object[] all = Stream.concat(Stream.of("share.acknowledgement.mode", "explicit"), Stream.of(config)).toArray();
        return member(group, topic, all);
    }

    static List<ConsumerRecord<String, String>> next(ShareConsumer<String, String> member) {
        long deadline = System.nanoTime() + CALL.toNanos();
        while (System.nanoTime() < deadline) {
            var records = member.poll(POLL);
            if (!records.isEmpty()) return StreamSupport.stream(records.spliterator(), false).toList();
        }
        throw new AssertionError("no records within " + CALL);
    }

    static void commit(ShareConsumer<String, String> member) {
        member.commitSync().forEach((place, error) -> equal(Optional.empty(), error, "commit of " + place));
    }

    static void say(ShareConsumer<String, String> member, AcknowledgeType type, List<ConsumerRecord<String, String>> records) {
        records.forEach(record -> member.acknowledge(record, type));
        commit(member);
    }

    static void nothing(ShareConsumer<String, String> member) {
        equal(0, member.poll(SOON).count(), "records for a member that is to get none");
    }

    static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    static Set<Short> counts(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(record -> record.deliveryCount().get()).collect(Collectors.toSet());
    }

    // Scenarios

    /** What was polled is done with the next poll or commit. */
    static void implicit() throws Exception {
        String topic = topic(1), group = group();
        send(topic, 1, 10);
        try (var first = member(group, topic)) {
            equal(10, next(first).size(), "first poll");
            nothing(first);
            send(topic, 1, 5);
            equal(5, next(first).size(), "second poll");
            commit(first);
        }
        try (var second = member(group, topic)) {
            nothing(second);
        }
    }

    static void closing() throws Exception {
        String topic = topic(1), group = group();
        send(topic, 1, 10);
        try (var first = explicit(group, topic)) {
            var got = next(first);
            say(first, AcknowledgeType.ACCEPT, got.subList(0, 4));
        }
        try (var second = explicit(group, topic)) {
            var got = next(second);
            equal(IntStream.range(4, 10).mapToObj(i -> "" + i).toList(), values(got), "what was not acknowledged");
            equal(Set.of((short) 2), counts(got), "how often it was delivered");
            say(second, AcknowledgeType.ACCEPT, got);
        }
    }

    /** A record that takes longer than a lock lasts is held by renewing it. */
    static void renewing() throws Exception {
        String topic = topic(1), group = group("share.record.lock.duration.ms", "2000");
        send(topic, 1, 1);
        try (var holder = explicit(group, topic); var other = explicit(group, topic)) {
            var got = next(holder);
            nothing(other);
            long end = System.nanoTime() + Duration.ofSeconds(5).toNanos();
            while (System.nanoTime() < end) {
                say(holder, AcknowledgeType.RENEW, got);
                got = next(holder);
                equal(Set.of((short) 1), counts(got), "how often a renewed record was delivered");
                equal(0, other.poll(Duration.ofMillis(500)).count(), "records for the other member");
            }
            say(holder, AcknowledgeType.ACCEPT, got);
            equal(0, other.poll(Duration.ofSeconds(3)).count(), "records for the other member");
        }
    }

    /** Without renewal it is another's when its lock has run out, and the late acknowledgement fails. */
    static void lateAcknowledgement() throws Exception {
        String topic = topic(1), group = group("share.record.lock.duration.ms", "1000");
        send(topic, 1, 1);
        try (var holder = explicit(group, topic); var other = explicit(group, topic)) {
            var got = next(holder);
            var again = next(other);
            equal(Set.of((short) 2), counts(again), "how often it was delivered");
            holder.acknowledge(got.get(0));
            var answers = holder.commitSync().values();
            equal(1, answers.size(), "answers");
            if (!(answers.iterator().next().orElse(null) instanceof InvalidRecordStateException))
                throw new AssertionError("a late acknowledgement was accepted: " + answers);
            say(other, AcknowledgeType.ACCEPT, again);
        }
    }

    /** Members that take one record at a time, though all of them lie in one batch. */
    static void recordLimit() throws Exception {
        String topic = topic(1), group = group();
        send(topic, 1, 12);
        Object[] one = {"share.acquire.mode", "record_limit", "max.poll.records", 1};
        List<String> done = new ArrayList<>();
        try (var first = explicit(group, topic, one); var second = explicit(group, topic, one)) {
            for (int i = 0; i < 6; i++) {
                var held = next(first);
                var other = next(second);
                equal(2, held.size() + other.size(), "records of two polls");
                say(second, AcknowledgeType.ACCEPT, other);
                say(first, AcknowledgeType.ACCEPT, held);
                done.addAll(values(held));
                done.addAll(values(other));
            }
            nothing(first);
        }
        equal(12L, done.stream().distinct().count(), "records done");
    }

    static void committedOnly() throws Exception {
        String topic = topic(1), group = group("share.isolation.level", "read_committed");
        try (var client = producer("transactional.id", topic)) {
            client.initTransactions();
            for (String what : List.of("committed", "aborted", "committed too", "aborted too")) {
                client.beginTransaction();
                for (int i = 0; i < 3; i++) client.send(new ProducerRecord<>(topic, 0, null, what));
                if (what.startsWith("committed")) client.commitTransaction(); else client.abortTransaction();
            }
        }
        List<String> found = new ArrayList<>();
        try (var member = explicit(group, topic)) {
            while (found.size() < 6) {
                var got = next(member);
                found.addAll(values(got));
                say(member, AcknowledgeType.ACCEPT, got);
            }
            nothing(member);
        }
        equal(Map.of("committed", 3L, "committed too", 3L), found.stream().collect(Collectors.groupingBy(v -> v, Collectors.counting())), "records");
    }

    /** Many members on few partitions that leave after every few records: each record is done once. */
    static void comingAndGoing() throws Exception {
        int members = 10, records = 2000;
        String topic = topic(3), group = group();
        Map<String, AtomicInteger> done = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newFixedThreadPool(members);
        List<Future<?>> running = new ArrayList<>();
        long deadline = System.nanoTime() + 2 * CALL.toNanos();
        for (int i = 0; i < members; i++) {
            int number = i;
            running.add(pool.submit(() -> {
                while (done.size() < records && System.nanoTime() < deadline) {
                    try (var member = explicit(group, topic, "max.poll.records", 20 + number)) {
                        for (int polls = 0; polls < 15 && done.size() < records; polls++) {
                            var got = StreamSupport.stream(member.poll(POLL).spliterator(), false).toList();
                            if (got.isEmpty()) continue;
                            boolean givesBack = polls % 5 == 4 && counts(got).equals(Set.of((short) 1));
                            if (givesBack) {
                                say(member, AcknowledgeType.RELEASE, got);
                            } else {
                                say(member, AcknowledgeType.ACCEPT, got);
                                got.forEach(r -> done.computeIfAbsent(r.value(), v -> new AtomicInteger()).incrementAndGet());
                            }
                        }
                    }
                }
                return null;
            }));
        }
        send(topic, 3, records);
        for (var run : running) run.get();
        pool.shutdown();
        equal(records, done.size(), "records that were done");
        equal(List.of(), done.entrySet().stream().filter(e -> e.getValue().get() != 1).map(Map.Entry::getKey).toList(), "records done twice");
    }

    static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("implicit acknowledgement", () -> implicit());
        all.put("closing gives back", () -> closing());
        all.put("renewing", () -> renewing());
        all.put("late acknowledgement", () -> lateAcknowledgement());
        all.put("record limit", () -> recordLimit());
        all.put("committed only", () -> committedOnly());
        all.put("coming and going", () -> comingAndGoing());
        return all;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        for (var entry : scenarios().entrySet()) {
            if (args.length > 2 && !entry.getKey().contains(args[2])) continue;
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("name", entry.getKey());
            line.put("error", null);
            long started = System.nanoTime();
            try {
                entry.getValue().run();
            } catch (Throwable error) {
                error.printStackTrace();
                line.put("error", error.toString());
            }
            line.put("seconds", (System.nanoTime() - started) / 1e9);
            System.out.println(JSON.writeValueAsString(line));
        }
        admin.close();
    }
}
