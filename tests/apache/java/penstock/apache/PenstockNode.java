package penstock.apache;

import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.server.IntegrationTestUtils;

/**
 * One node as a process of its own, {@code penstock serve --config}, with its ports and its data below one folder.
 *
 * <p>Ports and data stay when it is stopped and started again. What it is asked is asked over the wire, on a connection per question, so
 * that nothing of it stays in the JVM: Kafka's extension fails a test that leaves a thread.
 */
final class PenstockNode {

    private static final String PYTHON = System.getProperty("penstock.python", "python3");
    private static final int PORT_MIN = 10_000;
    private static final int PORT_MAX = 32_000;
    private static final Random RANDOM = new Random();
    private static final Set<Integer> GIVEN_PORTS = ConcurrentHashMap.newKeySet();
    private static final long READY_MS_MAX = 60_000;
    private static final long STOP_MS_MAX = 40_000;
    private static final long POLL_MS = 10;
    private static final int HTTP_MS_MAX = 10_000;
    private static final int SHOWN_CHARACTERS_MAX = 2_000;

    final int id;
    final int port = freePort();
    final int innerPort = freePort();
    final File data;
    private final int httpPort = freePort();
    private final int askedPort;
    private final Path config;
    private final Path output;
    private Process process;

    PenstockNode(int id, Path folder, boolean asksForLogins) {
        this.id = id;
        this.askedPort = asksForLogins ? innerPort : port;
        this.data = folder.resolve("node-" + id).toFile();
        this.config = folder.resolve("node-" + id + ".toml");
        this.output = folder.resolve("node-" + id + ".out");
    }

    String address() {
        return "localhost:" + port;
    }

    /** Where other nodes reach it, if not where clients do. */
    String innerAddress() {
        return "localhost:" + innerPort;
    }

    void configure(Map<String, String> settings) throws IOException {
        Map<String, String> all = new TreeMap<>(settings);
        all.put("node.id", String.valueOf(id));
        all.put("log.dirs", data.getAbsolutePath());
        all.put("penstock.http.listen", "127.0.0.1:" + httpPort);
        StringBuilder toml = new StringBuilder();
        all.forEach((name, value) -> toml.append(quoted(name)).append(" = ").append(quoted(value)).append('\n'));
        Files.writeString(config, toml);
    }

    void launch() {
        ProcessBuilder command = new ProcessBuilder(PYTHON, "-m", "penstock.cli", "serve", "--config", config.toString());
        command.redirectErrorStream(true).redirectOutput(output.toFile());
        command.redirectInput(new File("/dev/null"));
        try {
            process = command.start();
        } catch (IOException e) {
            throw new IllegalStateException("Node " + id + " could not be launched with " + PYTHON, e);
        }
    }

    void awaitReady() {
        long deadline = System.currentTimeMillis() + READY_MS_MAX;
        while (!printed().contains("ready: kafka=")) {
            if (!process.isAlive()) {
                throw new IllegalStateException("Node " + id + " ended before it was ready: " + lastPrinted());
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("Node " + id + " is not ready after " + READY_MS_MAX + " ms: " + lastPrinted());
            }
            pause();
        }
    }

    boolean isRunning() {
        return process != null && process.isAlive();
    }

    /** As an operator stops a node: it hands its leaderships over and ends. */
    void stop() {
        if (!isRunning()) {
            return;
        }
        process.destroy();
        try {
            if (!process.waitFor(STOP_MS_MAX, TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException("Node " + id + " has not ended " + STOP_MS_MAX + " ms after SIGTERM");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    void kill() {
        if (process != null) {
            process.destroyForcibly();
            try {
                process.waitFor();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    <T extends AbstractResponse> T ask(AbstractRequest request) {
        try {
            return IntegrationTestUtils.connectAndReceive(request, askedPort);
        } catch (IOException e) {
            throw new IllegalStateException("Node " + id + " does not answer " + request.apiKey(), e);
        }
    }

    /** The cluster as this node knows it at the moment. */
    MetadataResponse metadata() {
        return ask(MetadataRequest.Builder.allTopics().build());
    }

    /** The value of a gauge without labels at {@code /metrics}. */
    long gauge(String name) {
        for (String line : httpGet("/metrics").split("\n")) {
            if (line.startsWith(name + " ")) {
                return (long) Double.parseDouble(line.substring(name.length() + 1));
            }
        }
        throw new IllegalStateException("Node " + id + " has no metric " + name);
    }

    private String httpGet(String path) {
        try (Socket socket = new Socket()) {
            socket.setSoTimeout(HTTP_MS_MAX);
            socket.connect(new InetSocketAddress("127.0.0.1", httpPort), HTTP_MS_MAX);
            String request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            return new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new IllegalStateException("Node " + id + " does not answer " + path, e);
        }
    }

    private String printed() {
        try {
            return Files.readString(output);
        } catch (IOException e) {
            return "";
        }
    }

    private String lastPrinted() {
        String text = printed().strip();
        return text.substring(Math.max(0, text.length() - SHOWN_CHARACTERS_MAX));
    }

    static void pause() {
        try {
            Thread.sleep(POLL_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** Below those that the system hands out, and at random: several JVMs look for ports at the same time. */
    private static int freePort() {
        while (true) {
            int port = PORT_MIN + RANDOM.nextInt(PORT_MAX - PORT_MIN);
            if (!GIVEN_PORTS.add(port)) {
                continue;
            }
            try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getByName("localhost"))) {
                return socket.getLocalPort();
            } catch (IOException e) {
                // Somebody else has it: the next one.
            }
        }
    }
}
