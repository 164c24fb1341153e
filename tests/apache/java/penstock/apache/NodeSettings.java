package penstock.apache;

import java.util.List;
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

    private static final List<String> NOT_SERVED = List.of("group.share.", "share.", "group.streams.");
    private static final String PRODUCERS_CHECKED = "producer.id.expiration.check.interval.ms";
    private static final String RETENTION_CHECKED = "log.retention.check.interval.ms";

    private NodeSettings() {
    }

    static Map<String, String> of(ClusterConfig config, int nodeId) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(nodeId, Map.of()));
        // A node forgets idle producers when it looks for old segments; Kafka has a timer of its own for it.
        if (settings.containsKey(PRODUCERS_CHECKED)) {
            settings.putIfAbsent(RETENTION_CHECKED, settings.get(PRODUCERS_CHECKED));
        }
        Map<String, ConfigKey> known = KafkaConfig.configDef().configKeys();
        settings.keySet().removeIf(name -> !known.containsKey(name) || known.get(name).internalConfig);
        return settings;
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
