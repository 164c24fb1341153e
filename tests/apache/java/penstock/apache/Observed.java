package penstock.apache;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.requests.DescribeAclsRequest;
import org.apache.kafka.common.requests.DescribeAclsResponse;
import org.apache.kafka.common.requests.MetadataResponse.PartitionMetadata;
import org.apache.kafka.common.requests.MetadataResponse.TopicMetadata;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;

/** What can be seen of a node from outside: over the wire, at its metrics, in its data folder. */
final class Observed {

    private Observed() {
    }

    static Optional<TopicMetadata> topic(PenstockNode node, String topic) {
        return node.metadata().topicMetadata().stream().filter(found -> found.topic().equals(topic)).findFirst();
    }

    static List<PartitionMetadata> partitions(PenstockNode node, String topic) {
        return topic(node, topic).map(TopicMetadata::partitionMetadata).orElse(List.of());
    }

    static Optional<PartitionMetadata> partition(PenstockNode node, TopicPartition partition) {
        return partitions(node, partition.topic()).stream()
            .filter(found -> found.partition() == partition.partition())
            .findFirst();
    }

    static Map<String, Uuid> topicIds(PenstockNode node) {
        return node.metadata().topicMetadata().stream().collect(Collectors.toMap(TopicMetadata::topic, TopicMetadata::topicId));
    }

    static Set<AccessControlEntry> acls(PenstockNode node, AclBindingFilter filter) {
        DescribeAclsResponse found = node.ask(new DescribeAclsRequest.Builder(filter).build());
        return DescribeAclsResponse.aclBindings(found.acls()).stream().map(AclBinding::entry).collect(Collectors.toSet());
    }

    /** The folders of a topic's partitions, with those that are about to be removed. */
    static List<String> folders(PenstockNode node, String topic) {
        String[] names = node.data.list();
        return names == null ? List.of() : Arrays.stream(names).filter(name -> name.matches("\\Q" + topic + "\\E-\\d+([.-].*)?")).toList();
    }

    static boolean hasFolder(PenstockNode node, TopicPartition partition) {
        return folders(node, partition.topic()).contains(partition.toString());
    }

    /** The high watermark as it was checkpointed last, every few seconds. */
    static long highWatermark(PenstockNode node, TopicPartition partition) {
        File file = new File(node.data, "replication-offset-checkpoint");
        try {
            return new OffsetCheckpointFile(file, null).read().getOrDefault(partition, 0L);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static long committed(PenstockNode node) {
        return node.gauge("penstock_quorum_high_watermark");
    }

    static long applied(PenstockNode node) {
        return node.gauge("penstock_metadata_applied_offset");
    }
}
