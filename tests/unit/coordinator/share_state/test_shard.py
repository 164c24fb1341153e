"""The share coordinator's shard: whatever is written and pruned, its log builds an equal one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord, ErrorCode
from penstock.coordinator.share_state.answers import refuse, request_of
from penstock.coordinator.share_state.records import SNAPSHOT, encode_key
from penstock.coordinator.share_state.shard import BATCH_BYTES_MAX
from penstock.share.types import ShareKey
from penstock.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from penstock.wire.messages.delete_share_group_state import PartitionData as Delete
from penstock.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from penstock.wire.messages.initialize_share_group_state import PartitionData as Initialize
from penstock.wire.messages.read_share_group_state import PartitionData as Read
from penstock.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from penstock.wire.messages.read_share_group_state_summary import PartitionData as Summarise
from penstock.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from penstock.wire.messages.write_share_group_state import PartitionData as Write
from penstock.wire.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
)
from unit.coordinator.share_state.rig import VERSIONS, Rig, topic_id

EPOCHS = st.integers(-1, 4)
INDEXES = st.integers(-1, 3)
OFFSETS = st.integers(0, 30)


def initialised(rig: Rig, index: int = 0, **named: Any) -> Any:
    named = {"state_epoch": 1, "start_offset": 0, **named}
    return rig.ask(InitializeShareGroupStateRequest, "a", Initialize(partition=index, **named))


def write(index: int = 0, **named: Any) -> Write:
    named = {"state_epoch": 1, "leader_epoch": 0, "start_offset": -1, "state_batches": [], **named}
    return Write(partition=index, **named)


@st.composite
def batches(draw: st.DrawFn) -> list[StateBatch]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        first = draw(OFFSETS)
        found.append(
            StateBatch(
                first_offset=first,
                last_offset=draw(st.integers(max(0, first - 1), 30)),
                delivery_state=draw(st.sampled_from([0, 2, 4])),
                delivery_count=draw(st.integers(1, 5)),
            )
        )
    return found


STEPS = st.one_of(
    st.tuples(
        st.just(InitializeShareGroupStateRequest),
        st.builds(
            Initialize, partition=INDEXES, state_epoch=EPOCHS, start_offset=st.integers(-1, 30)
        ),
    ),
    st.tuples(
        st.just(ReadShareGroupStateRequest),
        st.builds(Read, partition=INDEXES, leader_epoch=EPOCHS),
    ),
    st.tuples(
        st.just(WriteShareGroupStateRequest),
        st.builds(
            Write,
            partition=st.integers(0, 1),
            state_epoch=EPOCHS,
            leader_epoch=EPOCHS,
            start_offset=st.integers(-1, 30),
            delivery_complete_count=st.integers(-1, 30),
            state_batches=batches(),
        ),
    ),
    st.tuples(st.just(DeleteShareGroupStateRequest), st.builds(Delete, partition=INDEXES)),
    st.tuples(
        st.just(ReadShareGroupStateSummaryRequest),
        st.builds(Summarise, partition=INDEXES, leader_epoch=EPOCHS),
    ),
    st.tuples(st.sampled_from(["prune", "cold", "crash", "wait", "gone"]), st.none()),
)


@given(st.lists(st.tuples(STEPS, st.sampled_from("ab")), max_size=40), st.integers(0, 4))
def test_what_is_left_of_the_log_builds_an_equal_shard(
    steps: list[tuple[tuple[Any, Any], str]], updates: int
) -> None:
    """The rig compares after every step."""
    rig = Rig(updates_per_snapshot=updates, cold_interval_ms=20)
    for index in (0, 1):
        initialised(rig, index)
    for (what, named), topic in steps:
        if what == "prune":
            rig.prune()
        elif what == "cold":
            rig.snapshot_cold()
        elif what == "crash":
            rig.crash()
        elif what == "wait":
            rig.now += 15
        elif what == "gone":
            if topic_id(topic) in rig.topics:
                rig.delete_topic(topic)
        else:
            rig.ask(what, topic, named)


def test_pruning_leaves_one_snapshot_of_what_is_hot() -> None:
    rig = Rig(updates_per_snapshot=2)
    initialised(rig)
    for _ in range(30):
        rig.ask(WriteShareGroupStateRequest, "a", write())
        rig.prune()
        assert len(rig.log) <= 3
    assert rig.log_start >= 28


def test_what_is_forgotten_is_pruned() -> None:
    rig = Rig()
    initialised(rig)
    rig.ask(DeleteShareGroupStateRequest, "a", Delete(partition=0))
    rig.prune()
    assert not rig.log
    assert not rig.shard.states


def test_snapshots_of_cold_states_come_in_bounded_batches() -> None:
    rig = Rig()
    rig.topics[topic_id("a")] = 4_000
    many = [Initialize(partition=i, state_epoch=1, start_offset=0) for i in range(4_000)]
    request = request_of(InitializeShareGroupStateRequest, "g" * 100, {topic_id("a"): many})
    rig.send(request)
    rig.now = 300_000
    rounds = 0
    while (effects := rig.snapshot_cold()).records:
        rounds += 1
        size = sum(len(key) + len(value or b"") for key, value in effects.records)
        assert size < BATCH_BYTES_MAX + 1_000
    assert rounds > 1
    rig.prune()
    assert len(rig.log) == 4_000


@pytest.mark.parametrize("kind", VERSIONS)
def test_a_refusal_answers_all_that_was_named(kind: Any) -> None:
    named = {
        InitializeShareGroupStateRequest: Initialize(partition=2, state_epoch=0, start_offset=0),
        ReadShareGroupStateRequest: Read(partition=2, leader_epoch=0),
        WriteShareGroupStateRequest: write(2),
        DeleteShareGroupStateRequest: Delete(partition=2),
        ReadShareGroupStateSummaryRequest: Summarise(partition=2, leader_epoch=0),
    }[kind]
    request = request_of(kind, "g", {topic_id("a"): [named], topic_id("b"): [named]})
    answer: Any = refuse(request, 0, ErrorCode.NOT_COORDINATOR)
    assert [topic.topic_id for topic in answer.results] == [topic_id("a"), topic_id("b")]
    for topic in answer.results:
        [result] = topic.partitions
        assert (result.partition, result.error_code) == (2, ErrorCode.NOT_COORDINATOR)
        assert result.error_message


def test_records_that_are_none_are_corrupt() -> None:
    shard = Rig().shard
    shard.replay(b"\x00\x07", b"a later release wrote this", 0, None)
    key = encode_key(SNAPSHOT, ShareKey("g", topic_id("a"), 0))
    for bad in (key[:-1], b"\x00"):
        with pytest.raises(CorruptRecord):
            shard.replay(bad, None, 0, None)
    with pytest.raises(CorruptRecord):
        shard.replay(key, b"\x00\x00\x01", 0, None)
