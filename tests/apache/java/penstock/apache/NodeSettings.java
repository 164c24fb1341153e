package penstock.apache;

import java.util.Map;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;

/**
 * The settings of a test as a node takes them.
 *
 * <p>Kafka ignores names that it does not know, and some tests have such names; a node refuses them, so they are left out.
 */
final class NodeSettings {

    private NodeSettings() {
    }

    static Map<String, String> of(ClusterConfig config, int nodeId) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(nodeId, Map.of()));
        settings.keySet().retainAll(KafkaConfig.configDef().names());
        return settings;
    }

    /** Fails at once, with the reason, what a node would refuse. */
    static void refuseWhatIsNotServed(ClusterConfig config) {
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT
            || config.controllerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
            throw new UnsupportedOperationException("not served: listeners are plain");
        }
    }
}
