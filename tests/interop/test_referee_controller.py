"""Apache Kafka as the referee for what the controller decides about partitions and features.

As in `test_referee.py`: the same requests to both brokers, and what differs has its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from penstock.wire.messages import alter_partition_reassignments as reassign
from penstock.wire.messages import alter_replica_log_dirs as folders
from penstock.wire.messages import elect_leaders as elect
from penstock.wire.messages import list_partition_reassignments as reassigning
from penstock.wire.messages import update_features as features
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from support.helpers import make_topic
from support.process import BrokerProcess
from support.referee import Script, compare

pytestmark = pytest.mark.java

# (script, pattern of the difference, why it is right)
DEVIATIONS: list[tuple[str, str, str]] = [
    (
        "feature_updates",
        r"^/(safe|unsafe) downgrade",
        "a downgrade is granted where nothing is lost by it",
    ),
    ("feature_updates", r"v1/results/0/error_message", "what went well needs no message"),
]


def elections(run: Script) -> None:
    name = make_topic(run.broker, f"{run.name}-t", 2, {})
    for version in range(3):
        for kind in (0, 1) if version else (0,):
            for wanted in ([0], [0, 7], []):
                topics = [elect.TopicPartitions(topic=name, partitions=wanted)]
                request = elect.ElectLeadersRequest(election_type=kind, topic_partitions=topics)
                run.ask(f"v{version} type {kind} {wanted}", request, version)
    nowhere = [elect.TopicPartitions(topic="no-such-topic", partitions=[0])]
    run.ask("nowhere", elect.ElectLeadersRequest(topic_partitions=nowhere), 2)
    strange = elect.ElectLeadersRequest(election_type=5, topic_partitions=nowhere)
    run.ask("strange type", strange, 2)
    run.ask("none", elect.ElectLeadersRequest(topic_partitions=[]), 2)


def reassignments(run: Script) -> None:
    name = make_topic(run.broker, f"{run.name}-t", 2, {})
    here = run.node_id

    def ask(
        label: str, replicas: list[int] | None, topic: str = name, index: int = 0, **how: bool
    ) -> None:
        partition = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        request = reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name=topic, partitions=[partition])], **how
        )
        for version in (0, 1):
            if not how or version:
                run.ask(f"{label} v{version}", request, version)

    ask("where it is", [here])
    ask("cancel nothing", None)
    ask("nobody", [])
    ask("twice", [here, here])
    ask("a stranger", [999])
    ask("another partition", [here], index=9)
    ask("another topic", [here], topic="no-such-topic")
    ask("cancel elsewhere", None, topic="no-such-topic")
    ask("wider", [here, 999], allow_replication_factor_change=False)
    ask("same width", [here], allow_replication_factor_change=False)
    run.ask("no topics", reassign.AlterPartitionReassignmentsRequest(topics=[]), 1)
    run.ask("list all", reassigning.ListPartitionReassignmentsRequest(topics=None), 0)
    named = [
        reassigning.ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 9])
        for topic in (name, "no-such-topic")
    ]
    run.ask("list some", reassigning.ListPartitionReassignmentsRequest(topics=named), 0)


def feature_updates(run: Script) -> None:
    def ask(label: str, name: str, level: int, kind: int) -> None:
        key = features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for version in (1, 2):
            request = features.UpdateFeaturesRequest(feature_updates=[key], validate_only=True)
            run.ask(f"{label} v{version}", request, version)

    ask("the same level", "metadata.version", 30, 1)
    ask("too high", "metadata.version", 99, 1)
    ask("negative", "metadata.version", -1, 1)
    ask("downgrade as upgrade", "metadata.version", 29, 1)
    ask("safe downgrade", "metadata.version", 29, 2)
    ask("unsafe downgrade", "metadata.version", 29, 3)
    ask("upgrade as downgrade", "metadata.version", 31, 2)
    ask("removed", "metadata.version", 0, 3)
    ask("strange type", "metadata.version", 30, 9)
    eligible = "eligible.leader.replicas.version"
    ask("eligible, the same level", eligible, 1, 1)
    ask("eligible, too high", eligible, 2, 1)
    ask("eligible, off as upgrade", eligible, 0, 1)
    ask("eligible, off", eligible, 0, 2)
    ask("eligible, off unsafely", eligible, 0, 3)
    ask("unknown feature", "no.such.feature", 1, 1)
    run.ask("nothing", features.UpdateFeaturesRequest(validate_only=True), 2)


def data_folders(run: Script) -> None:
    name = make_topic(run.broker, f"{run.name}-t", 1, {})
    for version in (1, 2):
        for path in ("/no/such/folder", "relative"):
            topics = [folders.AlterReplicaLogDirTopic(name=name, partitions=[0])]
            request = folders.AlterReplicaLogDirsRequest(
                dirs=[folders.AlterReplicaLogDir(path=path, topics=topics)]
            )
            run.ask(f"{path} v{version}", request, version)
    run.ask("nothing", folders.AlterReplicaLogDirsRequest(dirs=[]), 2)


def unregistering(run: Script) -> None:
    run.ask("a stranger", UnregisterBrokerRequest(broker_id=999), 0)


SCRIPTS: dict[str, Callable[[Script], None]] = {
    script.__name__: script
    for script in (elections, reassignments, feature_updates, data_folders, unregistering)
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_controllers_agree(kafka: BrokerProcess, node: BrokerProcess, name: str) -> None:
    run_name = f"ref-{name}".replace("_", "-")
    found = compare(SCRIPTS[name], run_name, kafka, node)
    allowed = [re.compile(pattern) for script, pattern, _ in DEVIATIONS if script == name]
    left = [line for line in found if not any(pattern.search(line) for pattern in allowed)]
    assert not left, f"{len(left)} differences, as Kafka's | {node.KIND}'s:\n" + "\n".join(left)
