import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Groups of Apache's own consumers in both protocols: `java GroupScenarios.java BOOTSTRAP PREFIX`.
 * Every scenario runs in this one JVM, on topics and groups whose names begin with PREFIX, and prints one line of JSON:
 * {"name": ..., "error": null or what went wrong}. Python turns the lines into tests.
 */
public class GroupScenarios {
    static final Duration CALL = Duration.ofSeconds(30);
    static final ObjectMapper JSON = new ObjectMapper();

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

    static <E extends Throwable> void refused(Class<E> kind, Scenario call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            if (kind.isInstance(cause)) return;
            throw new AssertionError("wanted " + kind.getSimpleName() + ", got " + cause, cause);
        }
        throw new AssertionError("wanted " + kind.getSimpleName() + ", got no error");
    }

    static String name() {
        return prefix + "-" + (++names);
    }

    static String topic(int partitions) throws Exception {
        String name = name();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        admin.listOffsets(all(name, partitions).stream().collect(Collectors.toMap(p -> p, p -> OffsetSpec.latest()))).all().get();
        return name;
    }

    static Set<TopicPartition> all(String topic, int partitions) {
        return IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toSet());
    }

    static void send(String topic, int partitions, int count) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (var client = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) client.send(new ProducerRecord<>(topic, i % partitions, null, "" + i)).get();
        }
    }

    /** A consumer, what it has read, and how often its assignment has changed. */
    static class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> client;
        final List<String> values = new ArrayList<>();
        int changes = 0;

        Member(String protocol, String group, Object... config) {
            Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
                "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
            if (protocol.equals("classic")) settings.putAll(Map.of("session.timeout.ms", 2000, "heartbeat.interval.ms", 200));
            for (int i = 0; i < config.length; i += 2) settings.put((String) config[i], config[i + 1]);
            client = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        }

        Member on(String topic) {
            client.subscribe(List.of(topic), this);
            return this;
        }

        public void onPartitionsRevoked(Collection<TopicPartition> given) { changes += given.isEmpty() ? 0 : 1; }
        public void onPartitionsAssigned(Collection<TopicPartition> taken) { changes += taken.isEmpty() ? 0 : 1; }

        void poll() {
            client.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.value()));
        }

        public void close() { client.close(); }
    }

    static void settle(Set<TopicPartition> wanted, Member... members) throws Exception {
        eventually("shared", () -> {
            Set<TopicPartition> owned = new HashSet<>();
            int count = 0;
            for (Member member : members) {
                member.poll();
                if (member.client.assignment().isEmpty()) return false;
                owned.addAll(member.client.assignment());
                count += member.client.assignment().size();
            }
            return count == wanted.size() && owned.equals(wanted);
        });
    }

    static List<String> take(int count, Member member) throws Exception {
        eventually(count + " messages", () -> { member.poll(); return member.values.size() >= count; });
        return member.values;
    }

    // Scenarios, each in both protocols

    static void share(String protocol, Object... config) throws Exception {
        String topic = topic(4), group = name();
        try (var first = new Member(protocol, group, config).on(topic)) {
            settle(all(topic, 4), first);
            try (var second = new Member(protocol, group, config).on(topic)) {
                settle(all(topic, 4), first, second);
                send(topic, 4, 20);
                eventually("all messages", () -> { first.poll(); second.poll(); return first.values.size() + second.values.size() == 20; });
            }
            settle(all(topic, 4), first);
        }
    }

    static void staticRestart(String protocol) throws Exception {
        String topic = topic(2), group = name();
        try (var first = new Member(protocol, group, "group.instance.id", "a").on(topic)) {
            var second = new Member(protocol, group, "group.instance.id", "b").on(topic);
            settle(all(topic, 2), first, second);
            Set<TopicPartition> had = second.client.assignment();
            int changes = first.changes;
            second.close();
            try (var again = new Member(protocol, group, "group.instance.id", "b").on(topic)) {
                settle(all(topic, 2), first, again);
                equal(had, again.client.assignment(), "assignment after the restart");
                equal(changes, first.changes, "changes that the other has seen");
            }
        }
    }

    static void commits(String protocol) throws Exception {
        String topic = topic(1), group = name();
        TopicPartition here = new TopicPartition(topic, 0);
        send(topic, 1, 6);
        try (var member = new Member(protocol, group).on(topic)) {
            equal(List.of("0", "1", "2", "3", "4", "5"), take(6, member), "from the beginning");
            var committed = new OffsetAndMetadata(4, Optional.of(0), "so far");
            member.client.commitSync(Map.of(here, committed));
            equal(committed, member.client.committed(Set.of(here)).get(here), "committed");
        }
        try (var member = new Member(protocol, group).on(topic)) {
            equal(List.of("4", "5"), take(2, member), "from the committed offset");
        }
        try (var stale = new Member(protocol, group)) {
            stale.client.assign(List.of(here));
            stale.client.commitSync(Map.of(here, new OffsetAndMetadata(1)));
            refused(OffsetMetadataTooLarge.class, () -> stale.client.commitSync(Map.of(here, new OffsetAndMetadata(1, "x".repeat(5000)))));
        }
    }

    static void resets(String protocol) throws Exception {
        String topic = topic(1);
        send(topic, 1, 3);
        try (var late = new Member(protocol, name(), "auto.offset.reset", "latest").on(topic)) {
            settle(all(topic, 1), late);
            equal(3L, late.client.position(new TopicPartition(topic, 0)), "latest");
        }
        try (var none = new Member(protocol, name(), "auto.offset.reset", "none").on(topic)) {
            refused(NoOffsetForPartitionException.class, () -> eventually("an error", () -> { none.poll(); return false; }));
        }
        try (var recent = new Member(protocol, name(), "auto.offset.reset", "by_duration:PT1H").on(topic)) {
            equal(List.of("0", "1", "2"), take(3, recent), "what came within an hour");
        }
    }

    static void pattern(String protocol) throws Exception {
        String topic = topic(1);
        try (var member = new Member(protocol, name())) {
            if (protocol.equals("consumer")) member.client.subscribe(new SubscriptionPattern(Pattern.quote(topic).replace("\\Q", "").replace("\\E", "")));
            else member.client.subscribe(Pattern.compile(Pattern.quote(topic)));
            settle(all(topic, 1), member);
        }
    }

    static void badPattern() throws Exception {
        try (var member = new Member("consumer", name())) {
            member.client.subscribe(new SubscriptionPattern("["));
            refused(InvalidRegularExpression.class, () -> eventually("an error", () -> { member.poll(); return false; }));
        }
    }

    static void otherAssignor() throws Exception {
        try (var member = new Member("consumer", name(), "group.remote.assignor", "no-such").on(topic(1))) {
            refused(UnsupportedAssignorException.class, () -> eventually("an error", () -> { member.poll(); return false; }));
        }
        share("consumer", "group.remote.assignor", "range");
    }

    static void administration(String protocol) throws Exception {
        String topic = topic(1), group = name();
        TopicPartition here = new TopicPartition(topic, 0);
        GroupType type = protocol.equals("consumer") ? GroupType.CONSUMER : GroupType.CLASSIC;
        try (var member = new Member(protocol, group, "client.id", "who").on(topic)) {
            settle(all(topic, 1), member);
            member.client.commitSync(Map.of(here, new OffsetAndMetadata(0)));
            var wanted = ListGroupsOptions.forConsumerGroups().withTypes(Set.of(type)).inGroupStates(Set.of(GroupState.STABLE));
            equal(true, admin.listGroups(wanted).all().get().stream().anyMatch(g -> g.groupId().equals(group)), "listed");
            var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            equal(List.of(type, GroupState.STABLE), List.of(found.type(), found.groupState()), "type and state");
            equal(protocol.equals("consumer") ? "uniform" : "range", found.partitionAssignor(), "assignor");
            var described = found.members().iterator().next();
            equal(List.of("who", "/127.0.0.1", Set.of(here)), List.of(described.clientId(), described.host(), described.assignment().topicPartitions()), "member");
            refused(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            refused(GroupSubscribedToTopicException.class, () -> admin.deleteConsumerGroupOffsets(group, Set.of(here)).partitionResult(here).get());
            refused(UnknownMemberIdException.class, () -> admin.alterConsumerGroupOffsets(group, Map.of(here, new OffsetAndMetadata(1))).all().get());
        }
        admin.alterConsumerGroupOffsets(group, Map.of(here, new OffsetAndMetadata(5, "by admin"))).all().get();
        equal(Map.of(here, new OffsetAndMetadata(5, "by admin")), admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(), "altered");
        admin.deleteConsumerGroupOffsets(group, Set.of(here)).all().get();
        equal(Map.of(), admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(), "offsets deleted");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        refused(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        refused(GroupIdNotFoundException.class, () -> admin.describeConsumerGroups(List.of(group)).all().get());
    }

    static void removeMembers() throws Exception {
        String topic = topic(1), group = name();
        try (var member = new Member("classic", group, "group.instance.id", "a").on(topic)) {
            settle(all(topic, 1), member);
            var gone = new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("a")));
            admin.removeMembersFromConsumerGroup(group, gone).all().get();
            equal(0, admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size(), "members");
        }
    }

    static void migration() throws Exception {
        String topic = topic(4), group = name();
        String cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        Object[] classic = {"partition.assignment.strategy", cooperative};
        var old = new Member("classic", group, classic).on(topic);
        settle(all(topic, 4), old);
        var fresh = new Member("consumer", group).on(topic);
        settle(all(topic, 4), old, fresh);
        equal(GroupType.CONSUMER, admin.describeConsumerGroups(List.of(group)).all().get().get(group).type(), "type");
        send(topic, 4, 20);
        eventually("all messages", () -> { old.poll(); fresh.poll(); return old.values.size() + fresh.values.size() == 20; });
        fresh.close();
        settle(all(topic, 4), old);
        equal(GroupType.CLASSIC, admin.describeConsumerGroups(List.of(group)).all().get().get(group).type(), "type");
        old.close();
    }

    // The list; its names are read from here by the Python side

    static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        String assignors = "org.apache.kafka.clients.consumer.";
        all.put("classic range", () -> share("classic", "partition.assignment.strategy", assignors + "RangeAssignor"));
        all.put("classic roundrobin", () -> share("classic", "partition.assignment.strategy", assignors + "RoundRobinAssignor"));
        all.put("classic sticky", () -> share("classic", "partition.assignment.strategy", assignors + "StickyAssignor"));
        all.put("classic cooperative", () -> share("classic", "partition.assignment.strategy", assignors + "CooperativeStickyAssignor"));
        all.put("classic static restart", () -> staticRestart("classic"));
        all.put("classic commits", () -> commits("classic"));
        all.put("classic resets", () -> resets("classic"));
        all.put("classic pattern", () -> pattern("classic"));
        all.put("classic administration", () -> administration("classic"));
        all.put("classic remove members", GroupScenarios::removeMembers);
        all.put("consumer uniform", () -> share("consumer"));
        all.put("consumer static restart", () -> staticRestart("consumer"));
        all.put("consumer commits", () -> commits("consumer"));
        all.put("consumer resets", () -> resets("consumer"));
        all.put("consumer pattern", () -> pattern("consumer"));
        all.put("consumer bad pattern", GroupScenarios::badPattern);
        all.put("consumer assignors", GroupScenarios::otherAssignor);
        all.put("consumer administration", () -> administration("consumer"));
        all.put("migration", GroupScenarios::migration);
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
                    if (frame.getClassName().startsWith("GroupScenarios")) where.append(" < line ").append(frame.getLineNumber());
                }
                result.put("error", where.toString());
            }
            result.put("seconds", (System.nanoTime() - started) / 1e9);
            System.out.println(JSON.writeValueAsString(result));
        }
        admin.close(Duration.ofSeconds(2));
    }
}
