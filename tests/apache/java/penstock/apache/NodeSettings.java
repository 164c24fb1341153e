package penstock.apache;

import java.util.Map;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.ClusterConfig;

/**
 * The settings of a test as a node takes them.
 *
 * <p>Left out is what a node refuses, but needs not: names that Kafka does not know either, and ignores, and those that Kafka has for
 * its own tests and does not tell its users.
 */
final class NodeSettings {

    private NodeSettings() {
    }

    static Map<String, String> of(ClusterConfig config, int nodeId) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(nodeId, Map.of()));
        Map<String, ConfigKey> known = KafkaConfig.configDef().configKeys();
        settings.keySet().removeIf(name -> !known.containsKey(name) || known.get(name).internalConfig);
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
