import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Transactions of Apache's own client, version 2 of them: `java TransactionScenarios.java BOOTSTRAP PREFIX`.
 * Every scenario runs in this one JVM, on topics and ids whose names begin with PREFIX, and prints one line of JSON:
 * {"name": ..., "error": null or what went wrong}. Python turns the lines into tests.
 */
public class TransactionScenarios {
    static final Duration CALL = Duration.ofSeconds(30);
    static final ObjectMapper JSON = new ObjectMapper();
    static final String END = "END ";

    interface Scenario { void run() throws Exception; }
    interface Check { boolean holds() throws Exception; }

    static String bootstrap;
    static String prefix;
    static int names = 0;
    static Admin admin;

    static void equal(Object wanted, Object got, String what) {
        if (!Objects.equals(wanted, got)) throw new AssertionError(what + ": wanted " + wanted + ", got " + got);
    }

    static void eventually(String what, Check condition) throws Exception {
        long deadline = System.nanoTime() + CALL.toNanos();
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) throw new AssertionError("still not so: " + what);
        }
    }

    /** The error, or one of its causes, is of this kind. */
    static <E extends Throwable> void refused(Class<E> kind, Scenario call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) if (kind.isInstance(cause)) return;
            throw new AssertionError("wanted " + kind.getSimpleName() + ", got " + error, error);
        }
        throw new AssertionError("wanted " + kind.getSimpleName() + ", got no error");
    }

    static synchronized String name() {
        return prefix + "-" + (++names);
    }

    static String topic(int partitions, String... config) throws Exception {
        String name = name();
        Map<String, String> settings = new HashMap<>();
        for (int i = 0; i < config.length; i += 2) settings.put(config[i], config[i + 1]);
        admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.empty()).configs(settings))).all().get();
        eventually("served: " + name, () -> {
            try {
                admin.listOffsets(all(name, partitions).stream().collect(Collectors.toMap(p -> p, p -> OffsetSpec.latest()))).all().get();
                return true;
            } catch (ExecutionException error) {
                return false; // the node that was asked has not heard of it yet
            }
        });
        return name;
    }

    static List<TopicPartition> all(String topic, int partitions) {
        return IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
    }

    // Writers

    static KafkaProducer<String, String> writer(String id, Object... config) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 2));
        if (id != null) settings.put("transactional.id", id);
        for (int i = 0; i < config.length; i += 2) settings.put((String) config[i], config[i + 1]);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaProducer<String, String> ready(String id, Object... config) {
        var made = writer(id, config);
        made.initTransactions();
        return made;
    }

    /** Two messages for each partition. */
    static void fill(KafkaProducer<String, String> writer, String label, List<TopicPartition> where) {
        for (int i = 0; i < 2; i++) for (var p : where) writer.send(new ProducerRecord<>(p.topic(), p.partition(), null, label + i + "@" + p));
    }

    static void transact(KafkaProducer<String, String> writer, String label, List<TopicPartition> where, boolean commit) {
        writer.beginTransaction();
        fill(writer, label, where);
        writer.flush();
        if (commit) writer.commitTransaction(); else writer.abortTransaction();
    }

    static List<String> filled(List<TopicPartition> where, String... labels) {
        List<String> values = new ArrayList<>();
        for (String label : labels) for (int i = 0; i < 2; i++) for (var p : where) values.add(label + i + "@" + p);
        return values.stream().sorted().toList();
    }

    /** A message at the end of each partition, by which a reader knows that it has seen all; it is like no other. */
    static String end(Collection<TopicPartition> where) throws Exception {
        String end = END + name();
        try (var plain = writer(null)) {
            for (var p : where) plain.send(new ProducerRecord<>(p.topic(), p.partition(), END, end)).get();
        }
        return end;
    }

    // Readers

    static KafkaConsumer<String, String> reader(boolean committed, Collection<TopicPartition> where, long from) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", committed ? "read_committed" : "read_uncommitted",
            "fetch.max.wait.ms", 100, "auto.offset.reset", "none");
        var made = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.assign(where);
        for (var p : where) made.seek(p, from);
        return made;
    }

    static List<ConsumerRecord<String, String>> untilEnd(KafkaConsumer<String, String> reader, String end) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        eventually("the end of " + reader.assignment(), () -> {
            reader.poll(Duration.ofMillis(50)).forEach(found::add);
            return found.stream().filter(r -> r.value().equals(end)).count() == reader.assignment().size();
        });
        found.removeIf(r -> r.value().startsWith(END));
        return found;
    }

    static List<ConsumerRecord<String, String>> read(boolean committed, Collection<TopicPartition> where, long from) throws Exception {
        String end = end(where);
        try (var reader = reader(committed, where, from)) {
            return untilEnd(reader, end);
        }
    }

    static List<String> values(boolean committed, Collection<TopicPartition> where) throws Exception {
        return read(committed, where, 0).stream().map(ConsumerRecord::value).sorted().toList();
    }

    static TransactionDescription described(String id) throws Exception {
        return admin.describeTransactions(List.of(id)).all().get().get(id);
    }

    static void over(String id) throws Exception {
        eventually("over: " + id, () -> described(id).state().toString().startsWith("Complete"));
    }

    static long stableEnd(TopicPartition where) throws Exception {
        var options = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
        return admin.listOffsets(Map.of(where, OffsetSpec.latest()), options).partitionResult(where).get().offset();
    }

    // Scenarios

    static void commitsAndAborts() throws Exception {
        List<TopicPartition> where = new ArrayList<>(all(topic(2), 2));
        where.addAll(all(topic(1), 1));
        try (var writer = ready(name())) {
            for (String label : List.of("a", "b", "c", "d", "e")) transact(writer, label, where, "ace".contains(label));
        }
        equal(filled(where, "a", "c", "e"), values(true, where), "committed");
        equal(filled(where, "a", "b", "c", "d", "e"), values(false, where), "all");
    }

    static void open() throws Exception {
        var where = all(topic(1), 1);
        try (var writer = ready(name()); var careful = reader(true, where, 0); var careless = reader(false, where, 0)) {
            transact(writer, "before", where, true);
            writer.beginTransaction();
            fill(writer, "open", where);
            writer.flush();
            String end = end(where);
            equal(filled(where, "before", "open"), untilEnd(careless, end).stream().map(ConsumerRecord::value).sorted().toList(), "all");
            equal(3L, stableEnd(where.get(0)), "last stable offset");
            List<String> seen = new ArrayList<>();
            eventually("two", () -> { careful.poll(Duration.ofMillis(50)).forEach(r -> seen.add(r.value())); return seen.size() == 2; });
            equal(0, careful.poll(Duration.ofMillis(200)).count(), "what is open");
            writer.abortTransaction();
            equal(List.of(), untilEnd(careful, end), "what was aborted");
        }
    }

    static KafkaConsumer<String, String> member(String protocol, String group, String topic) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        var made = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    static Map<TopicPartition, OffsetAndMetadata> positions(KafkaConsumer<String, String> reader) {
        return reader.assignment().stream().collect(Collectors.toMap(p -> p, p -> new OffsetAndMetadata(reader.position(p))));
    }

    static void offsets(String protocol) throws Exception {
        String source = topic(2), group = name();
        var sink = all(topic(1), 1);
        try (var plain = writer(null)) {
            for (int i = 0; i < 10; i++) plain.send(new ProducerRecord<>(source, i % 2, null, "v" + i)).get();
        }
        try (var writer = ready(name())) {
            for (boolean commit : List.of(false, true)) {
                try (var member = member(protocol, group, source)) {
                    List<String> seen = new ArrayList<>();
                    eventually("ten", () -> { member.poll(Duration.ofMillis(50)).forEach(r -> seen.add(r.value())); return seen.size() >= 10; });
                    writer.beginTransaction();
                    for (String value : seen) writer.send(new ProducerRecord<>(sink.get(0).topic(), value));
                    writer.sendOffsetsToTransaction(positions(member), member.groupMetadata());
                    if (commit) writer.commitTransaction(); else writer.abortTransaction();
                }
                long total = 0;
                for (var known : admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values()) total += known == null ? 0 : known.offset();
                equal(commit ? 10L : 0L, total, "offsets");
            }
        }
        equal(10, values(true, sink).size(), "copied");
    }

    /** A member that is no longer one cannot store offsets; what it has sent is aborted. */
    static void expelled(String protocol) throws Exception {
        String source = topic(1), group = name();
        var sink = all(topic(1), 1);
        end(all(source, 1));
        try (var writer = ready(name())) {
            var member = member(protocol, group, source);
            eventually("one", () -> !member.poll(Duration.ofMillis(50)).isEmpty());
            var held = positions(member);
            var metadata = member.groupMetadata();
            member.close();
            writer.beginTransaction();
            fill(writer, "x", sink);
            refused(CommitFailedException.class, () -> writer.sendOffsetsToTransaction(held, metadata));
            writer.abortTransaction();
            transact(writer, "y", sink, true);
        }
        equal(filled(sink, "y"), values(true, sink), "committed");
    }

    static void zombie() throws Exception {
        var where = all(topic(1), 1);
        String id = name();
        try (var zombie = ready(id); var successor = writer(id)) {
            transact(zombie, "first", where, true);
            zombie.beginTransaction();
            fill(zombie, "zombie", where);
            zombie.flush();
            successor.initTransactions();
            transact(successor, "second", where, true);
            refused(ProducerFencedException.class, zombie::commitTransaction);
            refused(ProducerFencedException.class, zombie::beginTransaction);
            transact(successor, "third", where, true);
        }
        equal(filled(where, "first", "second", "third"), values(true, where), "committed");
    }

    static void zombieSends() throws Exception {
        var where = all(topic(1), 1);
        String id = name();
        try (var zombie = ready(id); var successor = ready(id)) {
            zombie.beginTransaction();
            var late = zombie.send(new ProducerRecord<>(where.get(0).topic(), "late"));
            refused(InvalidProducerEpochException.class, late::get);
            refused(KafkaException.class, zombie::commitTransaction);
            refused(ProducerFencedException.class, zombie::abortTransaction);
            transact(successor, "next", where, true);
        }
        equal(filled(where, "next"), values(false, where), "all");
    }

    static void tooSlow() throws Exception {
        var where = all(topic(1), 1);
        String id = name();
        try (var slow = ready(id, "transaction.timeout.ms", 1000)) {
            transact(slow, "first", where, true);
            slow.beginTransaction();
            fill(slow, "slow", where);
            slow.flush();
            eventually("aborted", () -> described(id).state() == TransactionState.COMPLETE_ABORT);
            refused(InvalidTxnStateException.class, slow::commitTransaction);
        }
        try (var next = ready(id)) {
            transact(next, "next", where, true);
        }
        equal(filled(where, "first", "next"), values(true, where), "committed");
    }

    static void tooLongTimeout() throws Exception {
        try (var writer = writer(name(), "transaction.timeout.ms", 900_001)) {
            refused(KafkaException.class, writer::initTransactions);
            refused(KafkaException.class, writer::beginTransaction);
        }
    }

    static void crash() throws Exception {
        var where = all(topic(2), 2);
        String id = name();
        var crashed = ready(id);
        crashed.beginTransaction();
        fill(crashed, "lost", where);
        crashed.flush();
        equal(TransactionState.ONGOING, described(id).state(), "state");
        equal(Set.copyOf(where), described(id).topicPartitions(), "partitions");
        try (var heir = ready(id)) {
            transact(heir, "kept", where, true);
        }
        crashed.close(Duration.ZERO);
        equal(filled(where, "kept"), values(true, where), "committed");
    }

    static void nothing() throws Exception {
        var where = all(topic(1), 1);
        try (var writer = ready(name())) {
            for (boolean commit : List.of(true, false, true)) {
                writer.beginTransaction();
                if (commit) writer.commitTransaction(); else writer.abortTransaction();
                transact(writer, "t", where, true);
            }
        }
        equal(6, values(true, where).size(), "committed");
    }

    /** Version 2: every end moves the epoch, so nothing of an old transaction can pass for the next one's. */
    static void epochs() throws Exception {
        var where = all(topic(1), 1);
        String id = name();
        try (var writer = ready(id)) {
            int first = described(id).producerEpoch();
            for (int i = 1; i <= 4; i++) {
                transact(writer, "t" + i, where, i % 2 == 0);
                over(id);
                equal(first + i, described(id).producerEpoch(), "epoch");
            }
        }
    }

    /** Interleaved transactions over several segments, one aborted; also from the middle. */
    static void large() throws Exception {
        var where = all(topic(1, "segment.bytes", "1048576"), 1);
        String pad = "x".repeat(20_000);
        try (var kept = ready(name()); var dropped = ready(name())) {
            kept.beginTransaction();
            dropped.beginTransaction();
            for (int i = 0; i < 120; i++) {
                for (var writer : List.of(kept, dropped)) {
                    writer.send(new ProducerRecord<>(where.get(0).topic(), (writer == kept ? "kept " : "dropped ") + i + " " + pad));
                    if (i % 20 == 19) writer.flush();
                }
            }
            dropped.abortTransaction();
            kept.commitTransaction();
        }
        var seen = read(true, where, 0);
        equal(IntStream.range(0, 120).mapToObj(i -> "kept " + i).toList(),
            seen.stream().map(r -> r.value().substring(0, r.value().lastIndexOf(' '))).toList(), "committed");
        for (long from : List.of(1L, 60L, 130L, 200L)) {
            var later = seen.stream().filter(r -> r.offset() >= from).map(ConsumerRecord::offset).toList();
            equal(later, read(true, where, from).stream().map(ConsumerRecord::offset).toList(), "from " + from);
        }
    }

    static void many() throws Exception {
        var where = all(topic(3), 3);
        List<String> kept = Collections.synchronizedList(new ArrayList<>());
        var pool = Executors.newFixedThreadPool(8);
        List<Future<?>> done = new ArrayList<>();
        for (int w = 0; w < 8; w++) {
            int number = w;
            done.add(pool.submit(() -> {
                try (var writer = ready(name())) {
                    for (int step = 0; step < 6; step++) {
                        boolean commit = (number + step) % 3 != 0;
                        transact(writer, number + "." + step, where, commit);
                        if (commit) kept.add(number + "." + step);
                    }
                }
            }));
        }
        for (var one : done) one.get();
        pool.shutdown();
        equal(filled(where, kept.toArray(String[]::new)), values(true, where), "committed");
    }

    /** One after the other as quickly as it goes: the next begins while the last is still being marked. */
    static void inQuickSuccession() throws Exception {
        var where = all(topic(2), 2);
        try (var writer = ready(name())) {
            for (int i = 0; i < 50; i++) {
                writer.beginTransaction();
                for (var p : where) writer.send(new ProducerRecord<>(p.topic(), p.partition(), null, "" + i));
                if (i % 4 == 3) writer.abortTransaction(); else writer.commitTransaction();
            }
        }
        List<String> wanted = IntStream.range(0, 50).filter(i -> i % 4 != 3).mapToObj(i -> "" + i).toList();
        for (var p : where) equal(wanted, read(true, List.of(p), 0).stream().map(ConsumerRecord::value).toList(), "committed");
    }

    /** What one message did wrong costs its transaction, not its producer. */
    static void badMessage() throws Exception {
        var where = all(topic(1, "cleanup.policy", "compact"), 1);
        try (var writer = ready(name())) {
            writer.beginTransaction();
            writer.send(new ProducerRecord<>(where.get(0).topic(), "key", "good")).get();
            refused(InvalidRecordException.class, () -> writer.send(new ProducerRecord<>(where.get(0).topic(), "no key")).get());
            refused(InvalidRecordException.class, writer::commitTransaction);
            writer.abortTransaction();
            writer.beginTransaction();
            writer.send(new ProducerRecord<>(where.get(0).topic(), "key", "next"));
            writer.commitTransaction();
        }
        equal(List.of("next"), values(true, where), "committed");
    }

    static void compacted() throws Exception {
        String topic = topic(1, "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "0");
        var where = all(topic, 1);
        Map<String, String> left = new TreeMap<>();
        String pad = "x".repeat(2000);
        try (var writer = ready(name())) {
            for (int step = 0; step < 60; step++) {
                boolean commit = step % 3 != 1;
                writer.beginTransaction();
                for (int i = 0; i < 20; i++) {
                    String key = "k" + (step + i) % 30, value = commit + " " + step + " " + pad;
                    writer.send(new ProducerRecord<>(topic, key, value));
                    if (commit) left.put(key, value);
                }
                writer.flush();
                if (commit) writer.commitTransaction(); else writer.abortTransaction();
            }
        }
        eventually("cleaned", () -> {
            try (var reader = reader(false, where, 0)) {
                List<Long> offsets = new ArrayList<>();
                eventually("a message", () -> { reader.poll(Duration.ofMillis(50)).forEach(r -> offsets.add(r.offset())); return !offsets.isEmpty(); });
                return offsets.get(0) > 400;
            }
        });
        Map<String, String> seen = new TreeMap<>();
        for (var record : read(true, where, 0)) {
            if (record.value().startsWith("false")) throw new AssertionError("aborted data was read at " + record.offset());
            seen.put(record.key(), record.value());
        }
        equal(left, seen, "left");
    }

    // Administration

    static void administration() throws Exception {
        var where = all(topic(2), 2);
        String id = name();
        try (var writer = ready(id)) {
            writer.beginTransaction();
            fill(writer, "x", where);
            writer.flush();
            var known = described(id);
            equal(TransactionState.ONGOING, known.state(), "state");
            equal(60_000L, known.transactionTimeoutMs(), "timeout");
            equal(Set.copyOf(where), known.topicPartitions(), "partitions");
            var options = new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING)).filterProducerIds(List.of(known.producerId()));
            equal(List.of(id), admin.listTransactions(options).all().get().stream().map(TransactionListing::transactionalId).toList(), "listed");
            equal(0, admin.listTransactions(new ListTransactionsOptions().filterOnDuration(3_600_000).filterOnTransactionalIdPattern(id)).all().get().size(), "old");
            equal(1, admin.listTransactions(new ListTransactionsOptions().filterOnTransactionalIdPattern(".*" + id)).all().get().size(), "by name");
            for (var state : admin.describeProducers(where).all().get().values()) {
                var producer = state.activeProducers().get(0);
                equal(known.producerId(), producer.producerId(), "producer id");
                equal(OptionalLong.of(0), producer.currentTransactionStartOffset(), "start");
                equal(known.producerEpoch(), producer.producerEpoch(), "epoch");
                equal(1, producer.lastSequence(), "sequence");
            }
            writer.commitTransaction();
        }
        refused(TransactionalIdNotFoundException.class, () -> described(id + "-no"));
    }

    /** An operator ends a transaction that hangs, partition by partition. */
    static void abortHanging() throws Exception {
        var where = all(topic(1), 1);
        String id = name();
        try (var writer = ready(id)) {
            writer.beginTransaction();
            fill(writer, "x", where);
            writer.flush();
            var producer = admin.describeProducers(where).partitionResult(where.get(0)).get().activeProducers().get(0);
            int epoch = Math.max(0, producer.coordinatorEpoch().orElse(0));
            admin.abortTransaction(new AbortTransactionSpec(where.get(0), producer.producerId(), (short) producer.producerEpoch(), epoch)).all().get();
            equal(List.of(), values(true, where), "committed");
            equal(4L, stableEnd(where.get(0)), "last stable offset");
        }
    }

    static void fence() throws Exception {
        var where = all(topic(1), 1);
        String id = name();
        try (var writer = ready(id)) {
            writer.beginTransaction();
            fill(writer, "x", where);
            writer.flush();
            var fenced = admin.fenceProducers(List.of(id));
            fenced.all().get();
            refused(ProducerFencedException.class, writer::commitTransaction);
            equal(true, fenced.epochId(id).get() > 0, "epoch of the fence");
        }
        equal(List.of(), values(true, where), "committed");
    }

    // The list; its names are read from here by the Python side

    static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("commits and aborts", TransactionScenarios::commitsAndAborts);
        all.put("open", TransactionScenarios::open);
        all.put("offsets classic", () -> offsets("classic"));
        all.put("offsets consumer", () -> offsets("consumer"));
        all.put("expelled classic", () -> expelled("classic"));
        all.put("expelled consumer", () -> expelled("consumer"));
        all.put("zombie", TransactionScenarios::zombie);
        all.put("zombie sends", TransactionScenarios::zombieSends);
        all.put("too slow", TransactionScenarios::tooSlow);
        all.put("too long timeout", TransactionScenarios::tooLongTimeout);
        all.put("crash", TransactionScenarios::crash);
        all.put("nothing", TransactionScenarios::nothing);
        all.put("epochs", TransactionScenarios::epochs);
        all.put("large", TransactionScenarios::large);
        all.put("many", TransactionScenarios::many);
        all.put("in quick succession", TransactionScenarios::inQuickSuccession);
        all.put("bad message", TransactionScenarios::badMessage);
        all.put("compacted", TransactionScenarios::compacted);
        all.put("administration", TransactionScenarios::administration);
        all.put("abort hanging", TransactionScenarios::abortHanging);
        all.put("fence", TransactionScenarios::fence);
        return all;
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 30_000));
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
                    if (frame.getClassName().startsWith("TransactionScenarios")) where.append(" < line ").append(frame.getLineNumber());
                }
                result.put("error", where.toString());
            }
            result.put("seconds", (System.nanoTime() - started) / 1e9);
            System.out.println(JSON.writeValueAsString(result));
        }
        admin.close(Duration.ofSeconds(2));
    }
}
