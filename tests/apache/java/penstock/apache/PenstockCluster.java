package penstock.apache;

import static org.apache.kafka.clients.consumer.GroupProtocol.CLASSIC;
import static org.apache.kafka.clients.consumer.GroupProtocol.CONSUMER;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;

/**
 * A cluster of Penstock processes with the settings of a test of Apache Kafka's.
 *
 * <p>Every node of Penstock is broker and controller, so the two types of Kafka's clusters are one here, and the brokers are the voters
 * of the quorum. Kafka's controllers stay when a test stops a broker, but of two voters none may stop: two brokers have a third node as
 * the only voter. It takes no replicas, and clients do not see it, since it is not on their listener.
 */
public final class PenstockCluster implements ClusterInstance {

    private static final int CONTROLLER_ID = 3000;
    private static final int BROKERS_WITH_OWN_CONTROLLER = 2;
    private static final String INNER_LISTENER = "INNER";
    private static final long SETTLED_MS_MAX = 60_000;

    private final ClusterConfig config;
    private final boolean combined;
    private final TreeMap<Integer, PenstockNode> brokers = new TreeMap<>();
    private final TreeMap<Integer, PenstockNode> voters = new TreeMap<>();
    private final TreeMap<Integer, KafkaBroker> brokerStandIns = new TreeMap<>();
    private final TreeMap<Integer, ControllerServer> controllerStandIns = new TreeMap<>();
    private Path folder;
    private boolean started;
    private boolean stopped;

    public PenstockCluster(ClusterConfig config, boolean combined) {
        this.config = config;
        this.combined = combined;
    }

    // -- start and stop ------------------------------------------------------------------------

    @Override
    public synchronized void start() {
        if (started) {
            return;
        }
        started = true;
        try {
            prepare();
            List<PenstockNode> nodes = nodes();
            nodes.forEach(PenstockNode::launch);
            nodes.forEach(PenstockNode::awaitReady);
            waitForReadyBrokers();
            finaliseFeatures();
        } catch (Exception e) {
            stop();
            throw new IllegalStateException("The cluster could not be started: " + e.getMessage(), e);
        }
    }

    private void prepare() throws IOException {
        NodeSettings.refuseWhatIsNotServed(config);
        folder = Files.createTempDirectory("penstock-apache-");
        for (int id = 0; id < config.numBrokers(); id++) {
            brokers.put(id, new PenstockNode(id, folder, NodeSettings.asksForLogins(config)));
        }
        if (brokers.size() == BROKERS_WITH_OWN_CONTROLLER) {
            PenstockNode controller = new PenstockNode(CONTROLLER_ID, folder, false);
            voters.put(CONTROLLER_ID, controller);
            controller.configure(controllerSettings(controller));
            for (PenstockNode broker : brokers.values()) {
                broker.configure(settingsBesideController(broker, controller));
            }
        } else {
            voters.putAll(brokers);
            for (PenstockNode node : brokers.values()) {
                node.configure(voterSettings(node));
            }
        }
    }

    private Map<String, String> voterSettings(PenstockNode node) {
        String listener = config.brokerListenerName().value();
        Map<String, String> settings = NodeSettings.of(config, node.id);
        settings.put("listeners", listener + "://" + node.address());
        settings.put("inter.broker.listener.name", listener);
        settings.put("controller.quorum.voters", voters.values().stream().map(PenstockCluster::voter).collect(Collectors.joining(",")));
        if (NodeSettings.asksForLogins(config)) {
            settings.put("listeners", settings.get("listeners") + "," + INNER_LISTENER + "://" + node.innerAddress());
            NodeSettings.askForLogins(settings, config, INNER_LISTENER);
        }
        return settings;
    }

    private static String voter(PenstockNode node) {
        return node.id + "@" + node.address();
    }

    private Map<String, String> controllerSettings(PenstockNode node) {
        Map<String, String> settings = NodeSettings.of(config, node.id);
        settings.put("listeners", INNER_LISTENER + "://" + node.address());
        settings.put("inter.broker.listener.name", INNER_LISTENER);
        settings.put("controller.quorum.voters", voter(node));
        settings.put("cordoned.log.dirs", "*");
        return settings;
    }

    private Map<String, String> settingsBesideController(PenstockNode node, PenstockNode controller) {
        String listener = config.brokerListenerName().value();
        Map<String, String> settings = NodeSettings.of(config, node.id);
        settings.put("listeners", listener + "://" + node.address() + "," + INNER_LISTENER + "://" + node.innerAddress());
        settings.put("inter.broker.listener.name", INNER_LISTENER);
        settings.put("controller.quorum.bootstrap.servers", controller.address());
        if (NodeSettings.asksForLogins(config)) {
            NodeSettings.askForLogins(settings, config, INNER_LISTENER);
        }
        return settings;
    }

    /** A new cluster has the newest levels; a test may want others. Features that a node does not have stay away. */
    private void finaliseFeatures() throws Exception {
        if (config.features().isEmpty()) {
            return;
        }
        try (Admin admin = admin()) {
            Map<String, FinalizedVersionRange> now = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            Map<String, FeatureUpdate> updates = new TreeMap<>();
            config.features().forEach((feature, level) -> {
                FinalizedVersionRange found = now.get(feature.featureName());
                if (found != null && found.maxVersionLevel() != level) {
                    boolean down = level < found.maxVersionLevel();
                    updates.put(feature.featureName(), new FeatureUpdate(level, down ? UpgradeType.UNSAFE_DOWNGRADE : UpgradeType.UPGRADE));
                }
            });
            if (!updates.isEmpty()) {
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
                ensureConsistentMetadata();
            }
        }
    }

    private List<PenstockNode> nodes() {
        List<PenstockNode> nodes = new ArrayList<>(brokers.values());
        voters.values().stream().filter(node -> !brokers.containsKey(node.id)).forEach(nodes::add);
        return nodes;
    }

    @Override
    public synchronized void stop() {
        if (stopped) {
            return;
        }
        stopped = true;
        nodes().forEach(PenstockNode::kill);
        if (folder != null) {
            deleteFolder();
        }
    }

    private void deleteFolder() {
        try {
            Utils.delete(folder.toFile());
        } catch (IOException e) {
            throw new UncheckedIOException("The data of the nodes could not be removed", e);
        }
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int brokerId) {
        if (NodeSettings.handsOver(config)) {
            node(brokerId).stop();
        } else {
            node(brokerId).kill();
        }
    }

    @Override
    public void startBroker(int brokerId) {
        PenstockNode node = node(brokerId);
        node.launch();
        // Alone it cannot be ready; tests that have stopped all brokers start them one after the other.
        long voting = voters.values().stream().filter(PenstockNode::isRunning).count();
        if (2 * voting > voters.size()) {
            brokers.values().stream().filter(PenstockNode::isRunning).forEach(PenstockNode::awaitReady);
        }
    }

    private PenstockNode node(int brokerId) {
        return Optional.ofNullable(brokers.get(brokerId))
            .orElseThrow(() -> new IllegalArgumentException("There is no broker " + brokerId));
    }

    // -- waiting -------------------------------------------------------------------------------

    @Override
    public void waitForReadyBrokers() {
        Set<Integer> wanted = brokers.values().stream().filter(PenstockNode::isRunning).map(node -> node.id).collect(Collectors.toSet());
        await(
            "all brokers are known to all",
            () -> running().stream().allMatch(node -> node.metadata().brokersById().keySet().containsAll(wanted)));
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) {
        if (partitions <= 0) {
            throw new IllegalArgumentException("Partition count must be > 0, but was " + partitions);
        }
        awaitAtBrokers("topic " + topic + " is known to all", node -> Observed.partitions(node, topic).size() == partitions);
    }

    @Override
    public void waitTopicDeletion(String topic) {
        awaitAtBrokers("topic " + topic + " is gone at all", node -> Observed.partitions(node, topic).isEmpty());
        awaitAtBrokers("the files of " + topic + " are gone", node -> Observed.folders(node, topic).isEmpty());
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) {
        Set<AccessControlEntry> wanted = Set.copyOf(entries);
        awaitAtBrokers("the ACLs of " + filter + " are " + wanted, node -> Observed.acls(node, filter).equals(wanted));
    }

    @Override
    public void ensureConsistentMetadata() {
        long committed = running().stream().mapToLong(Observed::committed).max().orElseThrow();
        awaitAtBrokers("all have applied " + committed + " records", node -> Observed.applied(node) >= committed);
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
        ensureConsistentMetadata();
    }

    private void awaitAtBrokers(String what, java.util.function.Predicate<PenstockNode> condition) {
        await(what, () -> brokers.values().stream().filter(PenstockNode::isRunning).allMatch(condition));
    }

    private static void await(String what, BooleanSupplier condition) {
        long deadline = System.currentTimeMillis() + SETTLED_MS_MAX;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError("Not within " + SETTLED_MS_MAX + " ms: " + what);
            }
            PenstockNode.pause();
        }
    }

    private List<PenstockNode> running() {
        return nodes().stream().filter(PenstockNode::isRunning).toList();
    }

    // -- what is asked of a cluster --------------------------------------------------------------

    @Override
    public Type type() {
        return combined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    /** Made when they are asked for: the first of each class costs seconds, and many tests need none. */
    @Override
    public synchronized Map<Integer, KafkaBroker> brokers() {
        brokers.values().forEach(node -> brokerStandIns.computeIfAbsent(node.id, id -> StandIns.broker(node, this)));
        return Map.copyOf(brokerStandIns);
    }

    @Override
    public synchronized Map<Integer, ControllerServer> controllers() {
        voters.values().forEach(node -> controllerStandIns.computeIfAbsent(node.id, id -> StandIns.controller(node, this)));
        return Map.copyOf(controllerStandIns);
    }

    @Override
    public Set<Integer> brokerIds() {
        return Set.copyOf(brokers.keySet());
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.copyOf(voters.keySet());
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    /** The quorum uses the listener that the clients use. */
    @Override
    public ListenerName controllerListenerName() {
        return config.brokerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return brokers.values().stream().map(PenstockNode::address).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        return voters.values().stream().map(PenstockNode::address).collect(Collectors.joining(","));
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return brokers.values().stream().map(node -> node.port).toList();
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return voters.values().stream().map(node -> node.port).toList();
    }

    @Override
    public String clusterId() {
        return running().get(0).metadata().clusterId();
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        boolean classicOnly = config.features().getOrDefault(Feature.GROUP_VERSION, (short) 1) == 0;
        return classicOnly ? Set.of(CLASSIC) : Set.of(CLASSIC, CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }
}
