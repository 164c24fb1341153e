"""Members of groups as bare protocol: no client, no pauses but the broker's own.

Classic members have a connection each, since a JoinGroup waits in it. Members of the consumer
protocol share one, because their heartbeats are answered at once.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.cli.bench.sockets import connect
from penstock.cli.errors import CliError
from penstock.kafka.client import Address, Client
from penstock.kafka.connection import Connection
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
COMMIT_VERSION = 8
CONSUMER_HEARTBEAT_VERSION = 1
EMBEDDED_VERSION = 1
SESSION_TIMEOUT_MS = 300_000
"""Members that only wait must not be missed meanwhile."""
ROUND_S = 0.02
"""Pause between two rounds of heartbeats of the members of a consumer group."""
CONVERGE_S_MAX = 60.0
LEAVE_EPOCH = -1
_NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


class Coordinator(NamedTuple):
    """Whom the members talk to, and what they read."""

    address: Address
    client: Client
    topic: str
    partitions: int

    def connect(self) -> Connection:
        return connect(self.address, self.client)


def _check(error: int, doing: str) -> None:
    if error:
        raise CliError(
            f"the broker refused to {doing} with {ErrorCode(error).name}; look at its log"
        )


# The classic protocol


class ClassicMember:
    """One member on its own connection."""

    __slots__ = ("connection", "generation", "group", "id", "joined")

    def __init__(self, connection: Connection, group: str) -> None:
        self.connection = connection
        self.group = group
        self.id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    def send_join(self, topic: str) -> None:
        subscription = ConsumerProtocolSubscription(topics=[topic]).encode(EMBEDDED_VERSION)
        metadata = EMBEDDED_VERSION.to_bytes(2, "big") + subscription
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self.connection.send(request, JOIN_VERSION)

    def receive_join(self) -> ErrorCode:
        answer = self.connection.receive(JoinGroupResponse, JOIN_VERSION)
        self.id, self.generation, self.joined = answer.member_id, answer.generation_id, answer
        return ErrorCode(answer.error_code)

    def send_sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        self.connection.send(request, SYNC_VERSION)

    def receive_sync(self) -> None:
        answer = self.connection.receive(SyncGroupResponse, SYNC_VERSION)
        _check(answer.error_code, "sync a group")

    def beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id
        )
        answer = self.connection.call(request, HeartbeatResponse, HEARTBEAT_VERSION)
        _check(answer.error_code, "take a heartbeat")


def _first_join(members: Sequence[ClassicMember], topic: str) -> None:
    """Gets everyone a member id, as clients do, and sends the joins that carry it."""
    waiting = list(members)
    while waiting:
        for member in waiting:
            member.send_join(topic)
        again = []
        for member in waiting:
            error = member.receive_join()
            if error in _NOT_YET:
                again.append(member)
            elif error is not ErrorCode.MEMBER_ID_REQUIRED:
                _check(error, "let a member join")
        waiting = again
    for member in members:
        member.send_join(topic)


def _readable(descriptors: Iterable[int], timeout_s: float) -> list[int]:
    """Those of the descriptors, however many, on which something has come in."""
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    ready = [fd for fd, _ in poll.poll(timeout_s * 1000)]
    if not ready:
        raise CliError("the members of a group wait for each other: look at the broker's log")
    return ready


def _finish(members: Sequence[ClassicMember], coordinator: Coordinator) -> None:
    """Receives the joins that were sent and syncs; the leader shares the partitions out.

    A member that is answered with the generation that it had, or with one that began before all had
    joined, joins again.
    """
    outdated = {member.generation for member in members}
    waiting = {member.connection.fileno(): member for member in members}
    while waiting:
        for member in [waiting.pop(fd) for fd in _readable(waiting, coordinator.client.answer_s)]:
            _check(member.receive_join(), "let a member join")
            if member.joined is not None and 0 < len(member.joined.members) < len(members):
                outdated.add(member.generation)  # only a leader is told the members
        for member in members:
            fd = member.connection.fileno()
            if fd not in waiting and member.generation in outdated:
                member.send_join(coordinator.topic)
                waiting[fd] = member
    shares = _shares(members, coordinator)
    for member in members:
        leads = member.joined is not None and member.joined.leader == member.id
        member.send_sync(shares if leads else [])
    for member in members:
        member.receive_sync()


def _shares(
    members: Sequence[ClassicMember], coordinator: Coordinator
) -> list[SyncGroupRequestAssignment]:
    shares = []
    for i, member in enumerate(members):
        mine = AssignedTopicPartition(
            topic=coordinator.topic,
            partitions=list(range(i, coordinator.partitions, len(members))),
        )
        data = ConsumerProtocolAssignment(assigned_partitions=[mine]).encode(EMBEDDED_VERSION)
        assignment = EMBEDDED_VERSION.to_bytes(2, "big") + data
        shares.append(SyncGroupRequestAssignment(member_id=member.id, assignment=assignment))
    return shares


def classic_rebalance(coordinator: Coordinator, group: str, count: int) -> dict[str, Any]:
    """Seconds until a new group stands, the broker's initial delay included, and seconds that the
    same members take for their next generation: from the first join until all are synced.
    """
    with ExitStack() as stack:
        members = [
            ClassicMember(stack.enter_context(coordinator.connect()), group) for _ in range(count)
        ]
        began = time.perf_counter()
        _first_join(members, coordinator.topic)
        _finish(members, coordinator)
        formed = time.perf_counter()
        # The leader's join begins the next generation; the others are told to follow.
        members.sort(key=lambda m: m.joined is None or m.joined.leader != m.id)
        for member in members:
            member.send_join(coordinator.topic)
        _finish(members, coordinator)
        done = time.perf_counter()
    return {
        "classic_form_s": round(formed - began, 3),
        "classic_rebalance_s": round(done - formed, 3),
    }


# The consumer protocol


class ConsumerMember:
    """One member; it takes up what it is given and gives up what is taken, at once."""

    __slots__ = ("_changed", "epoch", "id", "owned")

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.epoch = 0
        self.owned: set[tuple[Uuid, int]] = set()
        self._changed = False

    def beat(self, connection: Connection, group: str, topic: str) -> None:
        """One heartbeat, with what has changed since the last one."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=self.id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = SESSION_TIMEOUT_MS
            request.subscribed_topic_names = [topic]
            request.topic_partitions = []
        elif self._changed:
            request.topic_partitions = _by_topic(self.owned)
        answer = connection.call(
            request, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT_VERSION
        )
        if self.epoch == 0 and ErrorCode(answer.error_code) in _NOT_YET:
            return
        _check(answer.error_code, "take a heartbeat")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = {
                (t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions
            }
            self._changed = given != self.owned
            self.owned = given


def _by_topic(owned: set[tuple[Uuid, int]]) -> list[TopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(owned):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=t, partitions=ps) for t, ps in topics.items()]


def _converge(
    members: Sequence[ConsumerMember], connection: Connection, group: str, coordinator: Coordinator
) -> float:
    """Rounds of heartbeats until all are at one epoch and own everything, evenly; the seconds it
    took.
    """
    began = time.perf_counter()
    share = coordinator.partitions // len(members)
    while True:
        for member in members:
            member.beat(connection, group, coordinator.topic)
        took = time.perf_counter() - began
        sizes = [len(member.owned) for member in members]
        if (
            len({member.epoch for member in members}) == 1
            and sum(sizes) == coordinator.partitions
            and min(sizes) >= share
        ):
            return took
        if took > CONVERGE_S_MAX:
            raise CliError(
                f"the group has not settled within {CONVERGE_S_MAX:g} s: look at the broker's log"
            )
        time.sleep(ROUND_S)


def consumer_join(coordinator: Coordinator, group: str, count: int) -> dict[str, Any]:
    """What it takes when the last of `count` members joins: seconds, and partitions that changed
    hands, of which the newcomer's share is the least possible.
    """
    members = [ConsumerMember(f"member-{i}") for i in range(count)]
    with coordinator.connect() as connection:
        formed = _converge(members[:-1], connection, group, coordinator)
        before = [set(member.owned) for member in members]
        joined = _converge(members, connection, group, coordinator)
        moved = sum(len(member.owned - old) for member, old in zip(members, before, strict=True))
        for member in members:
            _leave(connection, group, member.id)
    least = coordinator.partitions // count
    return {
        "consumer_form_s": round(formed, 3),
        "consumer_join_s": round(joined, 3),
        "consumer_moved": moved,
        "consumer_moved_too_many": moved - least,
    }


def _leave(connection: Connection, group: str, member_id: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=LEAVE_EPOCH
    )
    answer = connection.call(request, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT_VERSION)
    _check(answer.error_code, "let a member leave")


# Idle groups


def commit_offsets(coordinator: Coordinator, groups: Sequence[str]) -> None:
    """Gives each group one committed offset and nothing else."""
    with coordinator.connect() as connection:
        for group in groups:
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=0, committed_metadata=""
            )
            topic = OffsetCommitRequestTopic(name=coordinator.topic, partitions=[partition])
            request = OffsetCommitRequest(group_id=group, topics=[topic])
            answer = connection.call(request, OffsetCommitResponse, COMMIT_VERSION)
            _check(answer.topics[0].partitions[0].error_code, "commit an offset")


def join_and_leave(coordinator: Coordinator, groups: Sequence[str]) -> None:
    """Gives each group a member that leaves again."""
    with coordinator.connect() as connection:
        for group in groups:
            member = ConsumerMember("member")
            while member.epoch == 0:
                member.beat(connection, group, coordinator.topic)
            _leave(connection, group, member.id)


class LoneMembers:
    """Members that are alone in their groups."""

    def __init__(self, members: Sequence[ClassicMember]) -> None:
        self._members = members

    def beat(self, interval_s: float, seconds: float) -> int:
        """Every member beats once in `interval_s`, evenly spread; returns how many did."""
        began = time.perf_counter()
        pause = interval_s / len(self._members)
        beats = 0
        while (due := beats * pause) < seconds:
            time.sleep(max(0.0, began + due - time.perf_counter()))
            self._members[beats % len(self._members)].beat()
            beats += 1
        return beats


@contextmanager
def lone_members(coordinator: Coordinator, groups: Sequence[str]) -> Iterator[LoneMembers]:
    """A classic group with one member each, on as many connections."""
    with ExitStack() as stack:
        members = [
            ClassicMember(stack.enter_context(coordinator.connect()), group) for group in groups
        ]
        _first_join(members, coordinator.topic)
        for member in members:
            _check(member.receive_join(), "let a member join")
            member.send_sync(_shares([member], coordinator))
            member.receive_sync()
        yield LoneMembers(members)
