import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.TransactionCoordinatorRecordSerde;

/**
 * Reads records of the offsets topic ("group"), of the transaction log ("transaction") or of the share coordinator ("share", the
 * first argument) with Kafka's own serde, one "KEY_HEX VALUE_HEX" a line ("-" for no value), and answers "KEY_HEX TAB VALUE_HEX TAB key as JSON TAB value as JSON" as Kafka would
 * write them; whatever fails is "error TAB reason".
 */
public class Records {
    public static void main(String[] args) throws Exception {
        CoordinatorRecordSerde serde = switch (args[0]) {
            case "transaction" -> new TransactionCoordinatorRecordSerde();
            case "share" -> new ShareCoordinatorRecordSerde();
            default -> new GroupCoordinatorRecordSerde();
        };
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            try {
                out.println(answer(serde, words[0], words[1]));
            } catch (Exception e) {
                out.println("error\t" + e.toString().replace('\n', ' '));
            }
        }
        out.flush();
    }

    private static String answer(CoordinatorRecordSerde serde, String key, String value)
            throws Exception {
        var record = serde.deserialize(bytes(key), value.equals("-") ? null : bytes(value));
        byte[] written = serde.serializeValue(record);
        String json = record.value() == null
            ? "null"
            : json(record.value().message(), record.value().version());
        return HexFormat.of().formatHex(serde.serializeKey(record))
            + "\t" + (written == null ? "-" : HexFormat.of().formatHex(written))
            + "\t" + json(record.key(), (short) 0)
            + "\t" + json;
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static String json(ApiMessage message, short version) throws Exception {
        Class<?> type = message.getClass();
        return Class.forName(type.getName() + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false)
            .toString();
    }
}
