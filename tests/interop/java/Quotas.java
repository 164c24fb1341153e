import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.serialization.*;

/**
 * Apache's client and quotas: `java Quotas.java BOOTSTRAP TOPIC`. It sets quotas by the admin client,
 * describes them, uses them up as producer, consumer and admin, and prints what it met as one line of
 * JSON.
 */
public class Quotas {
    static final ObjectMapper JSON = new ObjectMapper();

    static Map<String, Object> with(Object... settings) {
        Map<String, Object> all = new HashMap<>();
        for (int i = 0; i < settings.length; i += 2) all.put((String) settings[i], settings[i + 1]);
        return all;
    }

    static ClientQuotaEntity entity(String type, String name) {
        return new ClientQuotaEntity(Collections.singletonMap(type, name));
    }

    static ClientQuotaAlteration set(ClientQuotaEntity entity, String key, Double value) {
        return new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, value)));
    }

    static double max(Map<MetricName, ? extends Metric> metrics, String name) {
        double most = 0;
        for (var one : metrics.values())
            if (one.metricName().name().equals(name) && one.metricValue() instanceof Double value && value > most) most = value;
        return most;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1];
        Map<String, Object> said = new TreeMap<>();
        try (Admin admin = Admin.create(with("bootstrap.servers", bootstrap, "client.id", "java-admin"))) {
            quotas(admin, said);
            produced(bootstrap, topic, said);
            consumed(bootstrap, topic, said);
            mutated(bootstrap, said);
            var gone = new ArrayList<ClientQuotaAlteration>();
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, values) ->
                values.keySet().forEach(key -> gone.add(set(entity, key, null))));
            for (var one : gone) admin.alterClientQuotas(List.of(one)).all().get();
            int left;
            long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            do left = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size();
            while (left > 0 && System.nanoTime() < end);
            said.put("left", left);
        }
        System.out.println(JSON.writeValueAsString(said));
    }

    static void quotas(Admin admin, Map<String, Object> said) throws Exception {
        admin.alterClientQuotas(List.of(
            set(entity("client-id", "java-producer"), "producer_byte_rate", 100_000.0),
            set(entity("client-id", "java-consumer"), "consumer_byte_rate", 100_000.0),
            set(entity("client-id", "java-maker"), "controller_mutation_rate", 1.0),
            set(entity("user", null), "request_percentage", 5_000.0),
            set(entity("ip", "10.1.1.1"), "connection_creation_rate", 10.0))).all().get();
        long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        Map<ClientQuotaEntity, Map<String, Double>> found;
        do found = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        while (found.size() < 5 && System.nanoTime() < end);
        said.put("described", found.size());
        said.put("producer", found.get(entity("client-id", "java-producer")).get("producer_byte_rate"));
        said.put("default", admin.describeClientQuotas(ClientQuotaFilter.containsOnly(List.of(
            ClientQuotaFilterComponent.ofDefaultEntity("user")))).entities().get().get(entity("user", null)));
        try {
            admin.alterClientQuotas(List.of(set(entity("ip", "10.1.1.1"), "producer_byte_rate", 1.0))).all().get();
        } catch (ExecutionException e) {
            said.put("refused", e.getCause().getClass().getSimpleName());
        }
    }

    static void produced(String bootstrap, String topic, Map<String, Object> said) throws Exception {
        Map<String, Object> settings = with("bootstrap.servers", bootstrap, "client.id", "java-producer",
            "batch.size", 16_384, "delivery.timeout.ms", 60_000, "enable.metrics.push", false);
        byte[] value = new byte[10_000];
        long began = System.nanoTime();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < 50; i++) producer.send(new ProducerRecord<>(topic, value)).get();
            said.put("produced_s", (System.nanoTime() - began) / 1e9);
            said.put("produce_throttle_ms", max(producer.metrics(), "produce-throttle-time-max"));
        }
    }

    static void consumed(String bootstrap, String topic, Map<String, Object> said) throws Exception {
        Map<String, Object> settings = with("bootstrap.servers", bootstrap, "client.id", "java-consumer",
            "auto.offset.reset", "earliest", "max.partition.fetch.bytes", 50_000, "enable.metrics.push", false);
        long began = System.nanoTime(), end = began + Duration.ofSeconds(60).toNanos();
        int seen = 0;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (seen < 50 && System.nanoTime() < end) seen += consumer.poll(Duration.ofMillis(100)).count();
            said.put("consumed", seen);
            said.put("consumed_s", (System.nanoTime() - began) / 1e9);
            said.put("fetch_throttle_ms", max(consumer.metrics(), "fetch-throttle-time-max"));
        }
    }

    static void mutated(String bootstrap, Map<String, Object> said) throws Exception {
        try (Admin admin = Admin.create(with("bootstrap.servers", bootstrap, "client.id", "java-maker"))) {
            var impatient = new CreateTopicsOptions().retryOnQuotaViolation(false);
            var many = List.of(new NewTopic("java-many", 5, (short) 1), new NewTopic("java-more", 1, (short) 1));
            var made = admin.createTopics(many, impatient).values();
            made.get("java-many").get();
            try {
                made.get("java-more").get();
            } catch (ExecutionException e) {
                said.put("exceeded", e.getCause().getClass().getSimpleName());
                said.put("exceeded_ms", ((ThrottlingQuotaExceededException) e.getCause()).throttleTimeMs());
            }
            // By default the client tries again when the time is over.
            admin.createTopics(List.of(new NewTopic("java-more", 1, (short) 1))).all().get();
            said.put("retried", true);
        }
    }
}
