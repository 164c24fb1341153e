import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * A producer and a consumer that push their metrics, as Apache's clients do unless they are told not to:
 * `java Telemetry.java BOOTSTRAP TOPIC NAME`, until stdin ends. Prints the ids of their instances.
 */
public class Telemetry {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "client.id", args[2] + "-producer");
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", args[0], "client.id", args[2] + "-consumer", "group.id", args[2], "group.protocol", "consumer");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            System.out.println(producer.clientInstanceId(Duration.ofSeconds(30)));
            System.out.println(consumer.clientInstanceId(Duration.ofSeconds(30)));
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>(args[1], "value")).get();
                consumer.poll(Duration.ofMillis(50));
            }
        }
    }
}
