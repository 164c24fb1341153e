import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Apache's client by every way in: `java Secured.java TOKEN_URL`, with one line of JSON for each on
 * stdin: {"name", "seconds", "settings"}. It makes a topic named so, sends to it for that long, reads
 * all of it in a group, and prints {"name", "error", "sent"}; the error is null or the class of what
 * kept it out.
 */
public class Secured {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration CALL = Duration.ofSeconds(30);
    static final int MESSAGES_MIN = 20;

    static Map<String, Object> with(Map<String, Object> settings, Object... more) {
        Map<String, Object> all = new HashMap<>(settings);
        for (int i = 0; i < more.length; i += 2) all.put((String) more[i], more[i + 1]);
        return all;
    }

    static int send(String topic, Map<String, Object> settings, double seconds) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        Map<String, Object> own = with(settings, "acks", "all", "delivery.timeout.ms", 30_000,
            "request.timeout.ms", 20_000, "linger.ms", 1);
        try (var producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer())) {
            long end = System.nanoTime() + (long) (seconds * 1e9);
            while (sent.size() < MESSAGES_MIN || System.nanoTime() < end) {
                sent.add(producer.send(new ProducerRecord<>(topic, "v" + sent.size())));
                if (seconds > 0) Thread.sleep(5);
            }
            for (var one : sent) one.get();
        }
        return sent.size();
    }

    static void read(String topic, Map<String, Object> settings, int count) throws Exception {
        Map<String, Object> own = with(settings, "group.id", "g-" + topic, "auto.offset.reset", "earliest");
        List<String> seen = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(own, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + CALL.toNanos();
            while (seen.size() < count && System.nanoTime() < end)
                for (var record : consumer.poll(Duration.ofMillis(100))) seen.add(record.value());
            consumer.commitSync(CALL);
        }
        for (int i = 0; i < count; i++)
            if (i >= seen.size() || !seen.get(i).equals("v" + i)) throw new AssertionError("message " + i + " of " + count);
        if (seen.size() != count) throw new AssertionError("more than were sent");
    }

    static int whole(String topic, Map<String, Object> settings, double seconds) throws Exception {
        try (Admin admin = Admin.create(with(settings, "default.api.timeout.ms", 15_000, "request.timeout.ms", 10_000))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        int sent = send(topic, settings, seconds);
        read(topic, settings, sent);
        return sent;
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", args[0]);
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            Map<?, ?> asked = JSON.readValue(in.nextLine(), Map.class);
            Map<String, Object> settings = new HashMap<>();
            ((Map<?, ?>) asked.get("settings")).forEach((k, v) -> settings.put((String) k, v));
            Map<String, Object> answer = new HashMap<>();
            answer.put("name", asked.get("name"));
            answer.put("error", null);
            try {
                answer.put("sent", whole((String) asked.get("name"), settings, ((Number) asked.get("seconds")).doubleValue()));
            } catch (Throwable error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }
}
