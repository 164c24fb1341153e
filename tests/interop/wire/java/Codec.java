import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Answers each line of its input with what Kafka's own classes make of it.
 *
 * "read CLASS VERSION HEX WRITE_VERSION": the message in HEX, written in WRITE_VERSION, as
 * "HEX TAB values as JSON". "default CLASS VERSION": the values that a new object of the class has, as
 * "TAB JSON"; CLASS may be a structure, Message$Structure. Whatever fails is "error TAB reason".
 */
public class Codec {
    private static final String PACKAGE = "org.apache.kafka.common.message.";

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] words) {
        short version = Short.parseShort(words[2]);
        try {
            if (words[0].equals("default")) {
                return "\t" + json(newMessage(words[1]), version);
            }
            return written(words[1], version, words[3], Short.parseShort(words[4]));
        } catch (Exception e) {
            Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
            return "error\t" + cause.toString().replace('\n', ' ');
        }
    }

    private static Message newMessage(String name) throws Exception {
        return (Message) Class.forName(PACKAGE + name).getDeclaredConstructor().newInstance();
    }

    private static String written(String name, short version, String hex, short writeVersion)
            throws Exception {
        Message message = newMessage(name);
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) {
            throw new IllegalStateException(bytes.remaining() + " bytes left over");
        }
        String values = json(message, version);
        var cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, writeVersion));
        message.write(new ByteBufferAccessor(out), cache, writeVersion);
        return HexFormat.of().formatHex(out.array(), 0, out.position()) + "\t" + values;
    }

    private static String json(Message message, short version) throws Exception {
        Class<?> type = message.getClass();
        Class<?> root = type.getNestHost();
        String converter = root.getName() + "JsonConverter";
        if (type != root) {
            converter += "$" + type.getSimpleName() + "JsonConverter";
        }
        return Class.forName(converter)
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false)
            .toString();
    }
}
