package penstock.apache;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;

/**
 * The settings of a test as a node takes them.
 *
 * <p>Kafka ignores names that it does not know, and some tests have such names; a node refuses them, so they are left out. A node hands
 * over whenever it is stopped; where a test wants brokers to go without, they are killed.
 */
final class NodeSettings {

    private static final List<String> NOT_SERVED = List.of("group.share.", "share.", "group.streams.");
    private static final String CONTROLLED_SHUTDOWN = "controlled.shutdown.enable";

    private NodeSettings() {
    }

    static Map<String, String> of(ClusterConfig config, int nodeId) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(nodeId, Map.of()));
        settings.keySet().retainAll(KafkaConfig.configDef().names());
        settings.remove(CONTROLLED_SHUTDOWN);
        return settings;
    }

    static boolean handsOver(ClusterConfig config) {
        return !"false".equals(config.serverProperties().get(CONTROLLED_SHUTDOWN));
    }

    /** Fails at once, with the reason, the tests of what a node does not have: they would wait for it until they time out. */
    static void refuseWhatIsNotServed(ClusterConfig config) {
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT
            || config.controllerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
            throw new UnsupportedOperationException("not served: authentication and encryption");
        }
        for (String prefix : NOT_SERVED) {
            if (config.serverProperties().keySet().stream().anyMatch(name -> name.startsWith(prefix))) {
                throw new UnsupportedOperationException("not served: what the settings " + prefix + "* are for");
            }
        }
    }
}
