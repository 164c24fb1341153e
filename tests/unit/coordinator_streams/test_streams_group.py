"""Streams groups as a whole: random lives, compacted logs, records of others, limits."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.coordinator.records import decode, encode
from penstock.coordinator.streams_group.heartbeat import CLIENT_TAGS_MAX
from penstock.coordinator.streams_group.topology import TOPOLOGY_ELEMENTS_MAX
from penstock.coordinator.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    TaskIdsWithEpochs,
)
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
)
from penstock.wire.messages.sync_group import SyncGroupRequest
from unit.coordinator_consumer.rig import GROUP
from unit.coordinator_streams.rig import StreamsRig, Tasks, streams_snapshot, tasks_of

SOURCES = [Subtopology(subtopology_id="0", source_topics=["t"])]
STATEFUL = [
    *SOURCES,
    Subtopology(
        subtopology_id="1",
        source_topics=["u"],
        state_changelog_topics=[TopicInfo(name="log")],
    ),
]


class Streams:
    """Members as Kafka Streams has them: each gives up what it is not given any more, later."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rig = StreamsRig(
            streams_session_timeout_ms=1_000_000, streams_num_standby_replicas=seed % 3
        )
        for name, count in (("t", 3), ("u", 4), ("log", 4)):
            self.rig.create(name, count)
        self.owned: dict[str, tuple[Tasks, Tasks]] = {}
        self.wanted: dict[str, tuple[Tasks, Tasks]] = {}
        self.epochs: dict[str, int] = {}

    def step(self) -> None:
        action = self.random.choices(
            [self.join, self.leave, self.beat, self.lose, self.grow, self.fail_over, self.settings],
            weights=[3, 1, 12, 2, 1, 1, 1],
        )[0]
        action()
        self.no_task_twice()

    def join(self) -> None:
        member = f"m{self.random.randrange(6)}"
        response = self.rig.streams_join(
            member, STATEFUL, process_id=f"p{self.random.randrange(3)}"
        )
        self.owned[member] = self.wanted[member] = (set(), set())
        self.take(member, response)

    def leave(self) -> None:
        if self.owned:
            member = self.random.choice(sorted(self.owned))
            self.rig.streams_beat(member, -1)
            for of_member in (self.owned, self.wanted, self.epochs):
                of_member.pop(member)

    def beat(self) -> None:
        if self.owned:
            self.heard(self.random.choice(sorted(self.owned)))

    def heard(self, member: str, *, lost: bool = False) -> None:
        owned = self.owned[member] = self.follow(member)
        response = self.rig.streams_beat(
            member, self.epochs[member], active=owned[0], standby=owned[1]
        )
        if not lost:
            self.take(member, response)

    def lose(self) -> None:
        """A heartbeat whose answer does not arrive."""
        if self.owned:
            self.heard(self.random.choice(sorted(self.owned)), lost=True)

    def grow(self) -> None:
        self.rig.grow("t", self.rig.topics.counts["t"] + 1)

    def fail_over(self) -> None:
        self.rig.fail_over()

    def settings(self) -> None:
        self.rig.own["streams_num_standby_replicas"] = self.random.randrange(3)

    def follow(self, member: str) -> tuple[Tasks, Tasks]:
        """What the member owns now: what it is to have, and perhaps still what it is to give up."""
        slow = self.random.random() < 0.5
        wanted, owned = self.wanted[member], self.owned[member]
        if slow and not (wanted[0] - owned[0] or wanted[1] - owned[1]):
            return owned
        return wanted

    def take(self, member: str, response: StreamsGroupHeartbeatResponse) -> None:
        if response.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            # Two answers were lost: it gives up everything and joins again.
            self.owned[member] = self.wanted[member] = (set(), set())
            response = self.rig.streams_join(member, STATEFUL, process_id=f"process-of-{member}")
        assert response.error_code == 0, response
        self.epochs[member] = response.member_epoch
        if response.active_tasks is not None:
            self.wanted[member] = (
                tasks_of(response.active_tasks),
                tasks_of(response.standby_tasks),
            )

    def no_task_twice(self) -> None:
        """Nobody is told to run what another still runs."""
        running: Counter[Any] = Counter()
        for member, (active, _) in self.owned.items():
            running.update(active | self.wanted[member][0])
        assert all(count == 1 for count in running.values()), running

    def settle(self) -> None:
        for _ in range(12):
            for member in sorted(self.owned):
                self.owned[member] = self.wanted[member]
                response = self.rig.streams_beat(
                    member,
                    self.epochs[member],
                    active=self.owned[member][0],
                    standby=self.owned[member][1],
                )
                self.take(member, response)
                self.no_task_twice()


@pytest.mark.parametrize("seed", range(40))
def test_random_lives(seed: int) -> None:
    streams = Streams(seed)
    for _ in range(120):
        streams.step()
    streams.join()
    streams.settle()
    counts = streams.rig.topics.counts
    everything = {("0", n) for n in range(counts["t"])} | {("1", n) for n in range(counts["u"])}
    owned = Counter(task for active, _ in streams.owned.values() for task in active)
    assert owned == Counter(everything)
    assert streams.rig.streams.state_name == "Stable"
    streams.rig.check_replay()


@settings(max_examples=30)
@given(seed=st.integers(0, 1_000), tombstones=st.booleans())
def test_a_compacted_log_builds_the_same_group(seed: int, tombstones: bool) -> None:
    streams = Streams(seed)
    streams.join()
    for _ in range(60):
        streams.step()
    rig = streams.rig
    last = {record.key: place for place, record in enumerate(rig.log)}
    log = [
        record
        for place, record in enumerate(rig.log)
        if last[record.key] == place and (tombstones or record.value is not None)
    ]
    shard = rig.make_shard()
    for key, value in log:
        shard.replay(key, value, rig.now_ms)
    shard.loaded(rig.now_ms)
    assert streams_snapshot(shard) == streams_snapshot(rig.shard)
    shard.invariants()


def classic_member(rig: StreamsRig) -> str:
    """A classic member has its assignment; its id."""
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    token = rig.start(join, 2)
    rig.advance(10_000)
    joined: Any = rig.answers[token]
    sync = SyncGroupRequest(
        group_id=GROUP, member_id=joined.member_id, generation_id=joined.generation_id
    )
    assert rig.send(sync, 2).error_code == 0
    return str(joined.member_id)


@pytest.mark.parametrize("tombstones", [True, False])
def test_a_classic_group_that_became_one_is_replayed_from_a_compacted_log(
    tombstones: bool,
) -> None:
    rig = StreamsRig()
    rig.create("t", 2)
    classic_member(rig)
    rig.advance(60_000)  # its session ends
    assert rig.streams_join("m1", SOURCES).error_code == 0
    last = {record.key: place for place, record in enumerate(rig.log)}
    shard = rig.make_shard()
    for place, (key, value) in enumerate(rig.log):
        if last[key] == place and (tombstones or value is not None):
            shard.replay(key, value, rig.now_ms)
    shard.loaded(rig.now_ms)
    assert streams_snapshot(shard) == streams_snapshot(rig.shard)


def test_a_classic_group_with_members_stays_one() -> None:
    rig = StreamsRig()
    rig.create("t", 2)
    classic_member(rig)
    response = rig.streams_join("m1", SOURCES)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_in_an_unknown_state_gives_up_everything() -> None:
    rig = StreamsRig()
    rig.create("t", 2)
    rig.streams_join("m1", SOURCES)
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="m1")
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=1,
        state=9,
        active_tasks=[TaskIdsWithEpochs(subtopology_id="0", partitions=[0, 1])],
    )
    rig.log.append(encode(key, value))
    rig.fail_over()
    written = len(rig.log)
    response = rig.streams_beat("m1", 2, active={("0", 0)})
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert len(rig.log) == written
    response = rig.streams_beat("m1", 2, active=set())
    assert response.error_code == 0
    assert rig.streams.state_name == "Stable"


def test_active_tasks_of_older_records_have_the_epoch_of_their_member() -> None:
    rig = StreamsRig()
    rig.create("t", 2)
    rig.streams_join("m1", SOURCES)
    record = next(
        r for r in rig.log if isinstance(decode(*r).key, StreamsGroupCurrentMemberAssignmentKey)
    )
    decoded: Any = decode(*record)
    for entry in decoded.value.active_tasks:
        entry.assignment_epochs = None
    rig.log.append(encode(decoded.key, decoded.value))
    rig.fail_over()
    assigned = rig.streams.engine.roster.members["m1"].progress.assigned
    assert set(assigned.values()) == {2}


def test_a_full_group_takes_only_those_that_it_knows() -> None:
    rig = StreamsRig(group_streams_max_size=1)
    rig.create("t", 2)
    assert rig.streams_join("m1", SOURCES).error_code == 0
    assert rig.streams_join("m2", SOURCES).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.streams_join("m1", SOURCES).error_code == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"active_tasks": []}, "all must be non-null"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topology": None}, "Topology must be non-null"),
        ({"task_offsets": []}, "TaskOffsets"),
        ({"task_end_offsets": []}, "TaskEndOffsets"),
        ({"rack_id": " "}, "RackId can't be empty"),
        (
            {"client_tags": [KeyValue(key=str(n)) for n in range(CLIENT_TAGS_MAX + 1)]},
            "tags",
        ),
    ],
)
def test_what_no_group_accepts(fields: dict[str, Any], message: str) -> None:
    rig = StreamsRig()
    rig.create("t", 1)
    if "active_tasks" in fields:
        response = rig.streams_beat("m1", 1, **fields)
    elif "topology" in fields:
        response = rig.streams_beat("m1", 0, active=set(), rebalance_timeout_ms=1, **fields)
    else:
        response = rig.streams_join("m1", SOURCES, **fields)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert message in (response.error_message or "")
    assert rig.log == []
    assert rig.shard.groups == {}


@pytest.mark.parametrize(
    "subtopology",
    [
        Subtopology(subtopology_id="0", source_topics=["t"] * (TOPOLOGY_ELEMENTS_MAX + 1)),
        Subtopology(
            subtopology_id="0",
            source_topics=["t"],
            state_changelog_topics=[
                TopicInfo(name="log", topic_configs=[KeyValue(key=str(n), value="x" * 30_000)])
                for n in range(40)
            ],
        ),
        Subtopology(
            subtopology_id="0",
            source_topics=["t"],
            copartition_groups=[CopartitionGroup(source_topics=[1])],
        ),
        Subtopology(
            subtopology_id="0",
            source_topics=["t"],
            copartition_groups=[CopartitionGroup(repartition_source_topics=[-1])],
        ),
        Subtopology(
            subtopology_id="0", repartition_source_topics=[TopicInfo(name="r", partitions=-1)]
        ),
    ],
)
def test_topologies_that_contradict_themselves(subtopology: Subtopology) -> None:
    rig = StreamsRig()
    rig.create("t", 1)
    response = rig.streams_join("m1", [subtopology])
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert rig.log == []


def test_regular_expressions_are_refused() -> None:
    rig = StreamsRig()
    subtopology = Subtopology(subtopology_id="0", source_topic_regex=["t.*"])
    response = rig.streams_join("m1", [subtopology])
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_offsets_of_an_empty_group_expire_and_the_group_with_them() -> None:
    rig = StreamsRig(offsets_retention_minutes=1)
    rig.create("t", 1)
    rig.streams_join("m1", SOURCES)
    rig.apply(rig.shard.expire(rig.now_ms))
    assert GROUP in rig.shard.groups
    rig.streams_beat("m1", -1)
    rig.apply(rig.shard.expire(rig.now_ms))
    assert GROUP not in rig.shard.groups
