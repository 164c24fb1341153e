import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache's command-line tools in this one JVM: `java Tools.java`. Each line of stdin is a JSON array, the class and its
 * arguments; each is answered with one line, {"code": ..., "out": ..., "err": ...}. The end of stdin ends the program.
 */
public class Tools {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What a tool throws in place of ending the JVM. */
    static class Ended extends Error {
        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** The first end counts: some tools catch everything that is thrown, and end again. */
    static Integer ended;

    static int run(String name, String[] args) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (ended != null) return ended;
            error.getCause().printStackTrace();
            return 255;
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            if (message != null) System.err.println(message);
            if (ended == null) ended = code;
            throw new Ended(code);
        });
        Exit.setShutdownHookAdder((name, runnable) -> { });
        PrintStream answers = System.out;
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            List<String> words = new ArrayList<>();
            for (JsonNode word : JSON.readTree(line)) words.add(word.asText());
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            // Scala's console keeps the streams it found when it was loaded, unless it is told.
            int[] code = {0};
            ended = null;
            String[] rest = words.subList(1, words.size()).toArray(new String[0]);
            scala.Console$.MODULE$.withOut(out, () -> scala.Console$.MODULE$.withErr(err, () -> {
                try {
                    code[0] = run(words.get(0), rest);
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
                return null;
            }));
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("code", code[0]);
            result.put("out", out.toString(StandardCharsets.UTF_8));
            result.put("err", err.toString(StandardCharsets.UTF_8));
            answers.println(JSON.writeValueAsString(result));
            answers.flush();
        }
    }
}
