import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/**
 * Counts words with Kafka Streams, exactly once: `java WordCount.java BOOTSTRAP APPLICATION SOURCE SINK DIRECTORY [PROTOCOL]`.
 * Every message of SOURCE is a word; each one makes SINK get (word, how often it has come so far). It runs until it is killed, or
 * told to end. With the protocol `streams` the broker assigns its tasks, and says how long a silent process is waited for.
 */
public class WordCount {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every word is answered
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        if (args.length > 5) {
            settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, args[5]);
            settings.put(StreamsConfig.APPLICATION_SERVER_CONFIG, "localhost:4711");
        } else {
            settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 2000);
            settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 300);
        }
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 3000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2])
            .groupBy((key, word) -> word)
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    }
}
