"""The state of a whole cluster at one moment, asked of its brokers side by side.

What cannot be asked (no quorum, a broker that is gone) is missing from the result and noted in
`problems`; only when no broker answers at all is there an error. The parts are asked one after
the other by the broker's own clock, so that they may be some milliseconds apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC, Uuid
from penstock.cli.cluster.asking import ASKED_AT_ONCE_MAX, Brokers, check
from penstock.cli.errors import CliError
from penstock.kafka.client import Address, unreachable, why
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

QUORUM_S_MAX = 3.0
"""The leader of a quorum answers at once; without one, the broker that is asked waits for it."""

Key = tuple[str, int]
"""A topic's name and the number of a partition."""
_T = TypeVar("_T")


class Node(NamedTuple):
    """A registered node; a fenced one takes no part until the controller hears from it."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool

    @property
    def address(self) -> Address:
        return self.host, self.port


class Partition(NamedTuple):
    topic: str
    number: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic, self.number

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Disk(NamedTuple):
    """A node's data folder; sizes are of the replicas on it, in bytes."""

    total_bytes: int
    usable_bytes: int
    cordoned: bool
    sizes: dict[Key, int]
    failed: tuple[str, ...] = ()
    """Folders that serve nobody any more: a whole data folder, or that of one stopped replica."""
    folders: tuple[str, ...] = ()
    """The data folders that work."""

    @property
    def used_bytes(self) -> int:
        return sum(self.sizes.values())


class Replica(NamedTuple):
    """A voter or an observer of the metadata quorum, as its leader sees it."""

    id: int
    directory_id: Uuid
    end_offset: int
    lag: int
    silent_ms: int | None
    """How long ago it fetched last; None where the leader has not heard from it, or cannot tell."""
    heard_from: bool = True
    """Whether it has fetched from this leader; True where that cannot be told."""


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int


class Quorum(NamedTuple):
    leader: int
    epoch: int
    high_watermark: int
    voters: list[Replica]
    observers: list[Replica]
    endpoints: dict[int, list[Endpoint]]
    """Where the voters listen."""
    clock_skew_ms: int = 0
    """How far the leader's clock is ahead of ours, as far as the time of the answer tells."""


class Reassignment(NamedTuple):
    topic: str
    number: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic, self.number


class Feature(NamedTuple):
    """A feature's finalised level, and the levels that every node supports; None where a node did
    not tell.
    """

    name: str
    finalized: int
    supported_min: int | None
    supported_max: int | None


@dataclass(slots=True)
class ClusterState:
    cluster_id: str
    nodes: dict[int, Node]
    partitions: dict[Key, Partition] = field(default_factory=dict)
    quorum: Quorum | None = None
    disks: dict[int, Disk] = field(default_factory=dict)
    reassignments: dict[Key, Reassignment] = field(default_factory=dict)
    features: dict[str, Feature] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)
    """By node, how many versions of APIs it serves: nodes of one release serve the same."""
    unreachable: list[int] = field(default_factory=list)
    """Nodes that are not fenced, but do not answer where they are advertised."""
    problems: list[str] = field(default_factory=list)
    """Sentences about what could not be asked."""

    def size_of(self, key: Key) -> int:
        """The bytes of the partition's largest replica, which stands for its leader's."""
        return max((disk.sizes.get(key, 0) for disk in self.disks.values()), default=0)


def gather(brokers: Brokers) -> ClusterState:
    """Everything that the commands look at."""
    state = read_nodes(brokers)
    live = [node for node in state.nodes.values() if not node.fenced]
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        partitions = pool.submit(read_partitions, brokers)
        quorum = pool.submit(_or_problem, lambda: read_quorum(brokers))
        moving = pool.submit(_or_problem, lambda: read_reassignments(brokers))
        greeted = [pool.submit(_or_problem, lambda n=node: _greet(brokers, n)) for node in live]
        disks = [pool.submit(_or_problem, lambda n=node: read_disk(brokers, n)) for node in live]
    state.partitions = partitions.result()
    state.quorum = _note(state, quorum.result())
    state.reassignments = _note(state, moving.result()) or {}
    if state.quorum is None:
        state.problems.append("without a quorum the rest is as it was when the quorum was lost")
    answers = []
    for node, greeting, disk in zip(live, greeted, disks, strict=True):
        if (answer := _note(state, greeting.result())) is None:
            state.unreachable.append(node.id)
            continue
        answers.append(answer)
        state.releases[node.id] = sum(api.max_version + 1 for api in answer.api_keys)
        if (found := _note(state, disk.result())) is not None:
            state.disks[node.id] = found
    state.features = read_features(answers)
    return state


def _or_problem(ask: Callable[[], _T]) -> _T | CliError:
    try:
        return ask()
    except CliError as e:
        return e


def _note(state: ClusterState, result: _T | CliError) -> _T | None:
    if isinstance(result, CliError):
        if result.sentence not in state.problems:
            state.problems.append(result.sentence)
        return None
    return result


def read_nodes(brokers: Brokers) -> ClusterState:
    """The nodes alone."""
    doing = "list the nodes"
    request = DescribeClusterRequest(include_fenced_brokers=True)
    answer = brokers.ask(request, DescribeClusterResponse, doing)
    check(answer.error_code, answer.error_message, doing)
    nodes = {
        b.broker_id: Node(b.broker_id, b.host, b.port, b.rack, b.is_fenced)
        for b in sorted(answer.brokers, key=lambda b: b.broker_id)
    }
    brokers.learn([node.address for node in nodes.values() if not node.fenced])
    return ClusterState(answer.cluster_id, nodes)


def read_partitions(brokers: Brokers) -> dict[Key, Partition]:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = brokers.ask(request, MetadataResponse, "list the partitions")
    found = {}
    for topic in sorted(answer.topics, key=lambda t: t.name or ""):
        for p in sorted(topic.partitions, key=lambda p: p.partition_index):
            leader = p.leader_id if p.leader_id >= 0 else None
            name = topic.name or ""
            partition = Partition(
                name, p.partition_index, leader, tuple(p.replica_nodes), tuple(p.isr_nodes)
            )
            found[partition.key] = partition
    return found


def read_quorum(brokers: Brokers) -> Quorum:
    doing = "describe the quorum"
    topic = RequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
    )
    request = DescribeQuorumRequest(topics=[topic])
    asked_ms = time.time_ns() // 1_000_000
    answer = brokers.ask(request, DescribeQuorumResponse, doing, within_s=QUORUM_S_MAX)
    answered_ms = time.time_ns() // 1_000_000
    check(answer.error_code, answer.error_message, doing)
    partition = answer.topics[0].partitions[0]
    check(partition.error_code, partition.error_message, doing)
    states = [*partition.current_voters, *partition.observers]
    end = max((state.log_end_offset for state in states), default=0)
    now_ms = max((state.last_fetch_timestamp for state in states), default=-1)
    return Quorum(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        [_replica(state, end, now_ms) for state in partition.current_voters],
        [_replica(state, end, now_ms) for state in partition.observers],
        {
            node.node_id: [Endpoint(at.name, at.host, at.port) for at in node.listeners]
            for node in answer.nodes
        },
        _clock_skew(partition.leader_id, states, asked_ms, answered_ms),
    )


def _clock_skew(leader: int, states: list[ReplicaState], asked_ms: int, answered_ms: int) -> int:
    """The leader's clock, told as the time of its own last fetch, against ours; 0 where that
    lies between question and answer, or is not told.
    """
    told = [state.last_fetch_timestamp for state in states if state.replica_id == leader]
    if not told or told[0] < 0:
        return 0
    return max(0, told[0] - answered_ms) - max(0, asked_ms - told[0])


def _replica(state: ReplicaState, end: int, now_ms: int) -> Replica:
    """`now_ms` is the leader's clock: the leader counts as having fetched this moment."""
    heard_from = state.last_fetch_timestamp >= 0
    return Replica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        max(0, end - max(0, state.log_end_offset)),
        now_ms - state.last_fetch_timestamp if heard_from else None,
        heard_from or now_ms < 0,
    )


def read_reassignments(brokers: Brokers) -> dict[Key, Reassignment]:
    doing = "list the reassignments"
    request = ListPartitionReassignmentsRequest(timeout_ms=brokers.timeout_ms, topics=None)
    answer = brokers.ask(request, ListPartitionReassignmentsResponse, doing)
    check(answer.error_code, answer.error_message, doing)
    moving = [
        Reassignment(
            topic.name,
            p.partition_index,
            tuple(p.replicas),
            tuple(p.adding_replicas),
            tuple(p.removing_replicas),
        )
        for topic in answer.topics
        for p in topic.partitions
    ]
    return {r.key: r for r in sorted(moving)}


def read_disk(brokers: Brokers, node: Node) -> Disk:
    doing = f"read the sizes on node {node.id}"
    try:
        request = DescribeLogDirsRequest(topics=None)
        answer = brokers.ask_at(node.address, request, DescribeLogDirsResponse, doing)
    except OSError as e:
        raise CliError(f"cannot {doing}: {e.strerror or e}") from None
    check(answer.error_code, None, doing)
    sizes: dict[Key, int] = {}
    working = [f for f in answer.results if f.error_code != ErrorCode.KAFKA_STORAGE_ERROR]
    for folder in working:
        check(folder.error_code, None, doing)
        for topic in folder.topics:
            for p in topic.partitions:
                if not p.is_future_key:
                    sizes[topic.name, p.partition_index] = p.partition_size
    return Disk(
        sum(max(0, folder.total_bytes) for folder in working),
        sum(max(0, folder.usable_bytes) for folder in working),
        all(folder.is_cordoned for folder in working),
        sizes,
        tuple(folder.log_dir for folder in answer.results if folder not in working),
        tuple(folder.log_dir for folder in working),
    )


def _greet(brokers: Brokers, node: Node) -> ApiVersionsResponse:
    try:
        return brokers.greet_at(node.address)
    except OSError as e:
        raise CliError(
            f"{unreachable(f'node {node.id}', node.address, why(e))}: start it, or correct its"
            " advertised.listeners if clients cannot use that address"
        ) from None


def read_features(answers: Iterable[ApiVersionsResponse]) -> dict[str, Feature]:
    """The levels in force and those that every node that answered supports."""
    answers = list(answers)
    features: dict[str, Feature] = {}
    newest = max(answers, key=lambda a: a.finalized_features_epoch, default=None)
    finalized = {f.name: f.max_version_level for f in newest.finalized_features} if newest else {}
    supported = [{f.name: f for f in a.supported_features} for a in answers]
    for name in sorted({name for levels in supported for name in levels} | finalized.keys()):
        told = [of[name] for of in supported if name in of]
        level = finalized.get(name, 0)
        low: int | None = max((f.min_version for f in told), default=None)
        high: int | None = min((f.max_version for f in told), default=None)
        if len(told) < len(supported):
            # A node lacks it, and works at level 0 only; or it is older than Kafka 3.9, and tells
            # nothing of features that begin at level 0.
            low = high = None if level else 0
        features[name] = Feature(name, level, low, high)
    return features
