package penstock.apache;

import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;

/** The settings of a test as a node takes them. */
final class NodeSettings {

    private NodeSettings() {
    }

    static Map<String, String> of(ClusterConfig config, int nodeId) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(nodeId, Map.of()));
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
