import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a share group of Apache's own client: {@code java ShareWorker.java BOOTSTRAP GROUP TOPIC MEMBERS [SETTING=VALUE ...]}.
 *
 * <p>Each member acknowledges what it gets, and says so in lines of JSON: what it got, then what of it was acknowledged. A record is
 * [partition, offset, delivery count]. The end of stdin has them leave.
 */
public class ShareWorker {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration POLL = Duration.ofMillis(200);
    static volatile boolean leaving = false;

    static synchronized void say(int member, String what, Collection<List<Long>> records) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("at", System.currentTimeMillis());
        line.put("member", member);
        line.put(what, records);
        System.out.println(JSON.writeValueAsString(line));
    }

    static List<Long> placed(ConsumerRecord<?, ?> record) {
        return List.of((long) record.partition(), record.offset(), (long) record.deliveryCount().get());
    }

    static void work(int number, Map<String, Object> settings, String topic) throws Exception {
        Map<String, Object> own = new HashMap<>(settings);
        own.put("client.id", "java-" + number);
        try (var member = new KafkaShareConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            member.subscribe(List.of(topic));
            while (!leaving) {
                var records = member.poll(POLL);
                if (records.isEmpty()) continue;
                List<List<Long>> got = new ArrayList<>();
                for (var record : records) {
                    got.add(placed(record));
                    member.acknowledge(record);
                }
                say(number, "got", got);
                List<List<Long>> done = new ArrayList<>(), failed = new ArrayList<>();
                Map<Integer, Boolean> accepted = new HashMap<>();
                member.commitSync().forEach((place, error) -> accepted.put(place.partition(), error.isEmpty()));
                for (var record : got) (accepted.getOrDefault(record.get(0).intValue(), false) ? done : failed).add(record);
                if (!done.isEmpty()) say(number, "acked", done);
                if (!failed.isEmpty()) say(number, "failed", failed);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "share.acknowledgement.mode", "explicit"));
        for (int i = 4; i < args.length; i++) {
            String[] parts = args[i].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            int number = i;
            threads.add(new Thread(() -> {
                try {
                    work(number, settings, args[2]);
                } catch (Throwable error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            }));
        }
        threads.forEach(Thread::start);
        while (System.in.read() >= 0) { }
        leaving = true;
        for (Thread thread : threads) thread.join();
    }
}
