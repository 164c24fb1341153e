import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.ClientRequestQuotaManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.ConnectionThrottledException;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;
import scala.Option;

/**
 * Answers each line of its input with what Kafka's own quota managers make of it.
 *
 * A line is "KIND SAMPLES SECONDS STEP STEP ...": a new manager of this kind (PRODUCE, FETCH, REQUEST,
 * CONTROLLER_MUTATION, CONNECTION), and what is done with it. The answer has a word for each step that
 * asks for something. Parts of a step are separated by commas; "-" is no user or client id, "*" the
 * default, "" an empty one.
 *
 * set,USER,CLIENT,BOUND   del,USER,CLIENT
 * record,USER,CLIENT,VALUE,MS -> ms to wait     later,... and unrecord,...: without a check
 * of,USER,CLIENT -> USER/CLIENT/BOUND of the bucket    max,USER,CLIENT -> largest value
 * strict,USER,CLIENT,VALUE,MS and permissive,... -> ms to wait, or "refused" and the ms
 * set,IP,BOUND   connect,IP,MS -> ms to wait
 */
public class Quotas {
    private static final double PERCENT_PER_NANO = 100.0 / TimeUnit.SECONDS.toNanos(1);

    private static class Clock implements Time {
        long now;

        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
            now += ms;
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ", -1);
            int samples = Integer.parseInt(words[1]);
            int seconds = Integer.parseInt(words[2]);
            List<String> steps = List.of(words).subList(3, words.length);
            boolean isConnection = words[0].equals("CONNECTION");
            System.out.println(String.join(" ", isConnection
                ? connections(samples, seconds, steps)
                : clients(QuotaType.valueOf(words[0]), samples, seconds, steps)));
            System.out.flush();
        }
    }

    private static List<String> clients(QuotaType type, int samples, int seconds, List<String> steps) {
        var clock = new Clock();
        var config = new ClientQuotaManagerConfig(samples, seconds);
        var answers = new ArrayList<String>();
        try (var metrics = new Metrics(clock)) {
            ClientQuotaManager manager = switch (type) {
                case REQUEST -> new ClientRequestQuotaManager(config, metrics, clock, "", Optional.empty());
                case CONTROLLER_MUTATION ->
                    new ControllerMutationQuotaManager(config, metrics, clock, "", Optional.empty());
                default -> new ClientQuotaManager(config, metrics, type, clock, "");
            };
            for (String step : steps) {
                String answer = step(manager, type, clock, step.split(",", -1));
                if (answer != null) {
                    answers.add(answer);
                }
            }
            manager.initiateShutdown();
        }
        return answers;
    }

    private static String step(ClientQuotaManager manager, QuotaType type, Clock clock, String[] parts) {
        String client = parts[2];
        switch (parts[0]) {
            case "set":
                manager.updateQuota(user(parts[1]), client(client),
                    Optional.of(Quota.upperBound(Double.parseDouble(parts[3]))));
                return null;
            case "del":
                manager.updateQuota(user(parts[1]), client(client), Optional.empty());
                return null;
            default:
                break;
        }
        var principal = new KafkaPrincipal(KafkaPrincipal.USER_TYPE, parts[1]);
        var session = new Session(principal, InetAddress.getLoopbackAddress());
        if (parts[0].equals("of")) {
            var tags = manager.getOrCreateQuotaSensors(session, client).metricTags();
            double bound = manager.quota(principal, client).bound();
            return Sanitizer.desanitize(tags.get("user")) + "/" + tags.get("client-id") + "/" + bound;
        }
        if (parts[0].equals("max")) {
            return Double.toString(manager.maxValueInQuotaWindow(session, client));
        }
        double value = Double.parseDouble(parts[3]);
        if (type == QuotaType.REQUEST) {
            value = Long.parseLong(parts[3]) * PERCENT_PER_NANO;
        }
        clock.now = Long.parseLong(parts[4]);
        switch (parts[0]) {
            case "record":
                return Integer.toString(
                    manager.maybeRecordAndGetThrottleTimeMs(session, client, value, clock.now));
            case "later":
                manager.recordNoThrottle(session, client, value);
                return null;
            case "unrecord":
                manager.unrecordQuotaSensor(session, client, value, clock.now);
                return null;
            case "strict":
                return mutate(((ControllerMutationQuotaManager) manager)
                    .newStrictQuotaFor(session, client), value);
            default:
                return mutate(((ControllerMutationQuotaManager) manager)
                    .newPermissiveQuotaFor(session, client), value);
        }
    }

    private static String mutate(ControllerMutationQuota quota, double value) {
        String refused = "";
        try {
            quota.record(value);
        } catch (ThrottlingQuotaExceededException e) {
            refused = "refused:";
        }
        return refused + quota.throttleTime();
    }

    private static Optional<ClientQuotaEntity.ConfigEntity> user(String name) {
        return switch (name) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default -> Optional.of(new ClientQuotaManager.UserEntity(Sanitizer.sanitize(name)));
        };
    }

    private static Optional<ClientQuotaEntity.ConfigEntity> client(String name) {
        return switch (name) {
            case "-" -> Optional.empty();
            case "*" -> Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default -> Optional.of(new ClientQuotaManager.ClientIdEntity(name));
        };
    }

    private static List<String> connections(int samples, int seconds, List<String> steps) throws Exception {
        var clock = new Clock();
        var properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.quorum.voters", "2@localhost:9093");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("listeners", "PLAINTEXT://localhost:9092");
        properties.put("quota.window.num", Integer.toString(samples));
        properties.put("quota.window.size.seconds", Integer.toString(seconds));
        var config = KafkaConfig.fromProps(properties);
        var listener = new ListenerName("PLAINTEXT");
        var meter = new MetricsRegistry().newMeter(
            new MetricName("test", "test", "blocked"), "blocked", TimeUnit.NANOSECONDS);
        var answers = new ArrayList<String>();
        try (var metrics = new Metrics(clock)) {
            var quotas = new ConnectionQuotas(config, clock, metrics);
            quotas.addListener(config, listener);
            for (String step : steps) {
                String[] parts = step.split(",", -1);
                if (parts[0].equals("set")) {
                    Option<InetAddress> ip =
                        parts[1].equals("*") ? Option.empty() : Option.apply(InetAddress.getByName(parts[1]));
                    quotas.updateIpConnectionRateQuota(ip, Option.apply((Object) Integer.valueOf(parts[2])));
                    continue;
                }
                clock.now = Long.parseLong(parts[2]);
                answers.add(connect(quotas, listener, InetAddress.getByName(parts[1]), meter));
            }
        }
        return answers;
    }

    private static String connect(ConnectionQuotas quotas, ListenerName listener, InetAddress ip,
            Meter meter) {
        try {
            quotas.inc(listener, ip, meter);
            return "0";
        } catch (ConnectionThrottledException e) {
            return Long.toString(e.throttleTimeMs);
        }
    }
}
