package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import penstock.apache.PenstockCluster;

/**
 * Gives each annotated test of Apache Kafka a cluster of Penstock nodes.
 *
 * <p>It has the name of the class by which Kafka's extension makes a cluster for a test, and stands before Kafka's jars on the class
 * path. Displayed names are Kafka's too, since both runs are compared by them.
 */
public final class RaftClusterInvocationContext implements TestTemplateInvocationContext {

    private final String testName;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String testName, ClusterConfig config, boolean combined) {
        this.testName = testName;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int invocationIndex) {
        return String.format(
            "%s [%d] Type=Raft-%s, %s",
            testName, invocationIndex, combined ? "Combined" : "Isolated", String.join(",", config.displayTags()));
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        PenstockCluster cluster = new PenstockCluster(config, combined);
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            // A test whose own preparation failed is never executed, so the callback above does not come.
            (AfterEachCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }
}
