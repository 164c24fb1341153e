package penstock.apache;

import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.JaasModule;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;

/**
 * The settings of a test as a node takes them.
 *
 * <p>Kafka ignores names that it does not know, and some tests have such names; a node refuses them, so they are left out. A node hands
 * over whenever it is stopped; where a test wants brokers to go without, they are killed. A node persists the states of share groups in
 * any case; where a test wants that to be left out, one broker is enough for them.
 */
final class NodeSettings {

    private static final String CONTROLLED_SHUTDOWN = "controlled.shutdown.enable";

    private static final String PERSISTER = "group.share.persister.class.name";
    private static final String STATE_TOPIC_REPLICAS = "share.coordinator.state.topic.replication.factor";
    private static final String STATE_TOPIC_MIN_ISR = "share.coordinator.state.topic.min.isr";

    private static final String LOGINS = JaasModule.plainLoginModule(
        JaasUtils.KAFKA_PLAIN_ADMIN,
        JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
        false,
        Map.of(
            JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD,
            JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD)).toString().replaceAll("\\s+", " ");

    private NodeSettings() {
    }

    static Map<String, String> of(ClusterConfig config, int nodeId) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(nodeId, Map.of()));
        settings.keySet().retainAll(KafkaConfig.configDef().names());
        settings.remove(CONTROLLED_SHUTDOWN);
        if ("".equals(settings.remove(PERSISTER))) {
            settings.putIfAbsent(STATE_TOPIC_REPLICAS, "1");
            settings.putIfAbsent(STATE_TOPIC_MIN_ISR, "1");
        }
        return settings;
    }

    static boolean asksForLogins(ClusterConfig config) {
        return config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT;
    }

    /** The users and rights that Kafka's own cluster has for such a test; who asks on the plain listener may ask everything. */
    static void askForLogins(Map<String, String> settings, ClusterConfig config, String plainListener) {
        String listener = config.brokerListenerName().value();
        settings.put("listener.security.protocol.map", listener + ":SASL_PLAINTEXT," + plainListener + ":PLAINTEXT");
        settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        settings.put("listener.name." + listener.toLowerCase(Locale.ROOT) + ".plain.sasl.jaas.config", LOGINS);
        settings.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
        settings.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN + ";User:ANONYMOUS");
    }

    static boolean handsOver(ClusterConfig config) {
        return !"false".equals(config.serverProperties().get(CONTROLLED_SHUTDOWN));
    }

    /** Fails at once, with the reason, the tests of what a node does not have: they would wait for it until they time out. */
    static void refuseWhatIsNotServed(ClusterConfig config) {
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT && !asksForLogins(config)) {
            throw new UnsupportedOperationException("no cluster is made for " + config.brokerSecurityProtocol());
        }
    }
}
