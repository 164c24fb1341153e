package penstock.apache;

import java.io.File;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import kafka.utils.Logging;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.requests.MetadataResponse.PartitionMetadata;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Answers;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Objects of Kafka's server that tests hold in their hands, for nodes that are other processes.
 *
 * <p>A stand-in answers what can be observed from outside ({@link Observed}). Whatever else a test asks is in the memory of Kafka's
 * server and fails with {@link InServerMemory}.
 */
final class StandIns {

    private static final int NO_LEADER = -1;
    private static final int NO_NODE = 9999;
    private static final int PARTITION_EPOCH_UNKNOWN = -1;

    /** The test looks into an object of Kafka's server for which nothing outside stands. */
    static final class InServerMemory extends UnsupportedOperationException {
        InServerMemory(String call) {
            super("in the memory of Kafka's server: " + call);
        }
    }

    private interface Reply extends Function<InvocationOnMock, Object> {
    }

    private StandIns() {
    }

    static KafkaBroker broker(PenstockNode node, PenstockCluster cluster) {
        KafkaConfig config = kafkaConfig(node, cluster, "broker");
        SocketServer socketServer = socketServer(node);
        MetadataCache metadataCache = metadataCache(node);
        LogManager logManager = logManager(node);
        ReplicaManager replicaManager = replicaManager(node);
        GroupCoordinator groupCoordinator = groupCoordinator(config);
        SharedServer sharedServer = sharedServer(node);
        KafkaApis apis = apis(cluster);
        Map<String, Reply> replies = new HashMap<>();
        replies.put("config", call -> config);
        replies.put("clusterId", call -> cluster.clusterId());
        replies.put("brokerState", call -> node.isRunning() ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN);
        replies.put("boundPort", call -> node.port);
        replies.put("socketServer", call -> socketServer);
        replies.put("metadataCache", call -> metadataCache);
        replies.put("logManager", call -> logManager);
        replies.put("replicaManager", call -> replicaManager);
        replies.put("groupCoordinator", call -> groupCoordinator);
        replies.put("sharedServer", call -> sharedServer);
        replies.put("dataPlaneRequestProcessor", call -> apis);
        replies.put("isShutdown", call -> !node.isRunning());
        replies.put("awaitShutdown", call -> null);
        replies.put("startup", call -> {
            cluster.startBroker(node.id);
            return null;
        });
        replies.put("shutdown", call -> {
            cluster.shutdownBroker(node.id);
            return null;
        });
        return standIn(BrokerServer.class, replies);
    }

    static ControllerServer controller(PenstockNode node, PenstockCluster cluster) {
        KafkaConfig config = kafkaConfig(node, cluster, "controller");
        SocketServer socketServer = socketServer(node);
        SharedServer sharedServer = sharedServer(node);
        RaftLog raftLog = standIn(RaftLog.class, Map.of("endOffset", call -> new LogOffsetMetadata(Observed.committed(node))));
        KafkaRaftManager<?> raftManager = standIn(KafkaRaftManager.class, Map.of("raftLog", call -> raftLog));
        Controller controller = standIn(
            Controller.class,
            Map.of("findAllTopicIds", call -> CompletableFuture.completedFuture(Observed.topicIds(node))));
        return standIn(ControllerServer.class, Map.of(
            "config", call -> config,
            "clusterId", call -> cluster.clusterId(),
            "socketServer", call -> socketServer,
            "sharedServer", call -> sharedServer,
            "raftManager", call -> raftManager,
            "controller", call -> controller));
    }

    /** What a test reads of a broker's settings: the test's own, and Kafka's defaults. */
    private static KafkaConfig kafkaConfig(PenstockNode node, PenstockCluster cluster, String role) {
        Map<String, String> settings = NodeSettings.of(cluster.config(), node.id);
        settings.put("process.roles", role);
        settings.put("node.id", String.valueOf(node.id));
        settings.put("controller.quorum.voters", NO_NODE + "@localhost:1");
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("log.dirs", node.data.getAbsolutePath());
        settings.put("listener.security.protocol.map", "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT");
        if (role.equals("broker")) {
            settings.put("listeners", "EXTERNAL://" + node.address());
            settings.put("inter.broker.listener.name", "EXTERNAL");
        } else {
            settings.put("controller.quorum.voters", node.id + "@" + node.address());
            settings.put("listeners", "CONTROLLER://" + node.address());
        }
        return new KafkaConfig(settings, false);
    }

    private static SocketServer socketServer(PenstockNode node) {
        return standIn(SocketServer.class, Map.of("boundPort", call -> node.port));
    }

    private static SharedServer sharedServer(PenstockNode node) {
        MetadataLoader loader = standIn(MetadataLoader.class, Map.of("lastAppliedOffset", call -> Observed.applied(node) - 1));
        return standIn(SharedServer.class, Map.of("loader", call -> loader));
    }

    private static KafkaApis apis(PenstockCluster cluster) {
        return standIn(KafkaApis.class, Map.of(
            "isConsumerGroupProtocolEnabled", call -> cluster.supportedGroupProtocols().contains(GroupProtocol.CONSUMER)));
    }

    private static GroupCoordinator groupCoordinator(KafkaConfig config) {
        Properties settings = new Properties();
        settings.put(TopicConfig.CLEANUP_POLICY_CONFIG, TopicConfig.CLEANUP_POLICY_COMPACT);
        settings.put(TopicConfig.SEGMENT_BYTES_CONFIG, String.valueOf(config.getInt("offsets.topic.segment.bytes")));
        int partitions = config.getInt("offsets.topic.num.partitions");
        return standIn(GroupCoordinator.class, Map.of(
            "groupMetadataTopicConfigs", call -> settings,
            "partitionFor", call -> Utils.abs(call.<String>getArgument(0).hashCode()) % partitions));
    }

    private static MetadataCache metadataCache(PenstockNode node) {
        return standIn(KRaftMetadataCache.class, Map.of(
            "getAliveBrokerNodes", call -> List.copyOf(node.metadata().brokersById().values()),
            "getAllTopics", call -> Set.copyOf(Observed.topicIds(node).keySet()),
            "contains", call -> contains(node, call.getArgument(0)),
            "getTopicId", call -> Observed.topicIds(node).getOrDefault(call.<String>getArgument(0), Uuid.ZERO_UUID),
            "topicNamesToIds", call -> Observed.topicIds(node),
            "hasAliveBroker", call -> node.metadata().brokersById().containsKey(call.<Integer>getArgument(0)),
            "numPartitions", call -> Optional.of(Observed.partitions(node, call.getArgument(0)).size()).filter(count -> count > 0),
            "getLeaderAndIsr", call -> leaderAndIsr(node, new TopicPartition(call.getArgument(0), call.<Integer>getArgument(1)))));
    }

    private static boolean contains(PenstockNode node, Object topicOrPartition) {
        if (topicOrPartition instanceof TopicPartition partition) {
            return Observed.partition(node, partition).isPresent();
        }
        return Observed.topic(node, (String) topicOrPartition).isPresent();
    }

    private static Optional<LeaderAndIsr> leaderAndIsr(PenstockNode node, TopicPartition partition) {
        return Observed.partition(node, partition).map(found -> new LeaderAndIsr(
            found.leaderId.orElse(NO_LEADER),
            found.leaderEpoch.orElse(0),
            found.inSyncReplicaIds,
            LeaderRecoveryState.RECOVERED,
            PARTITION_EPOCH_UNKNOWN));
    }

    private static LogManager logManager(PenstockNode node) {
        return standIn(LogManager.class, Map.of(
            "getLog", call -> log(node, call.getArgument(0)),
            "getLog$default$2", call -> false,
            "liveLogDirs", call -> CollectionConverters.asScala(List.<File>of(node.data)).toSeq()));
    }

    private static ReplicaManager replicaManager(PenstockNode node) {
        return standIn(ReplicaManager.class, Map.of(
            "onlinePartition", call -> partition(node, call.getArgument(0)),
            "localLog", call -> log(node, call.getArgument(0))));
    }

    /** A log is there when its folder is: where records lie and how they are read is Kafka's own. */
    private static Option<UnifiedLog> log(PenstockNode node, TopicPartition partition) {
        if (!Observed.hasFolder(node, partition)) {
            return Option.empty();
        }
        return Option.apply(standIn(UnifiedLog.class, Map.of(
            "highWatermark", call -> Observed.highWatermark(node, partition))));
    }

    private static Option<Partition> partition(PenstockNode node, TopicPartition partition) {
        if (!Observed.hasFolder(node, partition)) {
            return Option.empty();
        }
        return Option.apply(standIn(Partition.class, Map.of(
            "leaderIdIfLocal", call -> leads(node, partition) ? Option.apply((Object) node.id) : Option.empty(),
            "leaderLogIfLocal", call -> leads(node, partition) ? log(node, partition) : Option.empty())));
    }

    private static boolean leads(PenstockNode node, TopicPartition partition) {
        Optional<PartitionMetadata> found = Observed.partition(node, partition);
        return found.isPresent() && found.get().leaderId.filter(id -> id == node.id).isPresent();
    }

    private static <T> T standIn(Class<T> type, Map<String, Reply> replies) {
        Answer<Object> answer = call -> {
            Reply reply = replies.get(call.getMethod().getName());
            if (reply != null) {
                return reply.apply(call);
            }
            Class<?> owner = call.getMethod().getDeclaringClass();
            if (owner == Object.class || owner == Logging.class) {
                return Answers.RETURNS_DEFAULTS.answer(call);
            }
            throw new InServerMemory(type.getSimpleName() + "." + call.getMethod().getName());
        };
        return Mockito.mock(type, Mockito.withSettings().defaultAnswer(answer).stubOnly());
    }
}
