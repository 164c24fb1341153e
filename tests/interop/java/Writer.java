import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache's idempotent producer at a steady rate: `java Writer.java BOOTSTRAP TOPIC PARTITIONS PER_SECOND`, until stdin ends.
 * Prints one line of JSON per answer, [seconds when sent, seconds when answered, partition, offset, value, error or null],
 * by the clock that Python's time.time() reads.
 */
public class Writer {
    static double now() {
        return System.currentTimeMillis() / 1000.0;
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        long pause = 1_000_000_000L / Long.parseLong(args[3]);
        ObjectMapper json = new ObjectMapper();
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "acks", "all", "linger.ms", 2);
        try (var client = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; System.in.available() == 0; number++) {
                int partition = number % partitions;
                String value = "w-" + number;
                double sent = now();
                client.send(new ProducerRecord<>(topic, partition, null, value), (done, error) -> {
                    String said = error == null ? null : error.toString();
                    long offset = error == null ? done.offset() : -1;
                    try {
                        String line = json.writeValueAsString(Arrays.asList(sent, now(), partition, offset, value, said));
                        synchronized (System.out) { System.out.println(line); }
                    } catch (Exception broken) {
                        throw new RuntimeException(broken);
                    }
                });
                LockSupport.parkNanos(pause);
            }
        }
    }
}
