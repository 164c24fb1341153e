"""Committed offsets of a shard: stored, read, removed, expired, and the same after a replay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.coordinator.config import MINUTE_MS
from penstock.coordinator.offsets import DOOMED_AT_ONCE_MAX
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from unit.coordinator.rig import ShardRig, id_of, stored


def offsets_of(found: Any) -> dict[tuple[str, int], int]:
    return {
        (t.name, p.partition_index): p.committed_offset for t in found.topics for p in t.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_is_read_back_in_every_version(version: int) -> None:
    rig = ShardRig()
    assert rig.commit("g", {("t", 1): 42}, version=version, metadata="where I am") == [0]
    [topic] = rig.fetch("g", {"t": [1]}, version=version).topics
    [partition] = topic.partitions
    assert (partition.committed_offset, partition.metadata) == (42, "where I am")
    assert partition.committed_leader_epoch == 5
    assert stored(rig.replayed()) == stored(rig.shard)


def test_what_was_never_committed_is_no_error() -> None:
    found = ShardRig().fetch("nobody", {"t": [0, 3]})
    assert found.error_code == 0
    assert offsets_of(found) == {("t", 0): -1, ("t", 3): -1}
    assert {p.error_code for t in found.topics for p in t.partitions} == {0}


def test_all_offsets_of_a_group() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1, ("t", 2): 3, ("u", 1): 5})
    rig.commit("other", {("t", 0): 9})
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 1, ("t", 2): 3, ("u", 1): 5}
    assert offsets_of(rig.fetch("none", None)) == {}


def test_topics_that_are_not_there() -> None:
    rig = ShardRig()
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.commit("g", {("t", 0): 1, ("x", 0): 1, ("t", 4): 1}) == [0, missing, missing]
    assert rig.commit("g", {("x", 0): 1}) == [missing]
    unknown_id = ErrorCode.UNKNOWN_TOPIC_ID
    assert rig.commit("g", {("x", 0): 1, ("u", 0): 7}, version=10) == [unknown_id, 0]
    [found] = rig.fetch("g", {"x": [0]}, version=10).topics
    assert found.partitions[0].error_code == unknown_id
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 1, ("u", 0): 7}


def test_a_group_that_only_failed_to_commit_is_not_made() -> None:
    rig = ShardRig()
    rig.commit("g", {("x", 0): 1})
    assert rig.shard.groups == {}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_gone(version: int, code: ErrorCode) -> None:
    rig = ShardRig()
    who = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert rig.commit("g", {("t", 0): 1}, version=version, **who) == [code]
    # A topic that is missing is said to be missing, whatever the group.
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.commit("g", {("t", 0): 1, ("x", 0): 1}, version=version, **who) == [code, missing]
    assert not rig.log


def test_a_metadata_text_beyond_its_limit() -> None:
    rig = ShardRig(offset_metadata_max_bytes=8)
    assert rig.commit("g", {("t", 0): 1}, metadata="12345678") == [0]
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.commit("g", {("t", 0): 2}, metadata="123456789") == [too_large]
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 1}


def test_a_topic_made_anew_has_no_offsets() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1, ("u", 0): 2})
    del rig.topics.counts["t"]
    rig.take(rig.shard.topics_deleted(frozenset({"t"})))
    assert offsets_of(rig.fetch("g", None)) == {("u", 0): 2}
    assert stored(rig.replayed()) == stored(rig.shard)


def test_many_offsets_of_a_deleted_topic_are_removed_some_at_a_time() -> None:
    many = 3 * DOOMED_AT_ONCE_MAX
    rig = ShardRig()
    rig.topics.counts["t"] = many
    rig.commit("g", {("t", i): i for i in range(many)} | {("u", 0): 2})
    del rig.topics.counts["t"]
    effects = rig.take(rig.shard.topics_deleted(frozenset({"t"})))
    assert len(effects.records) == DOOMED_AT_ONCE_MAX
    # Another topic of that name, whose offsets stay.
    rig.topics.counts["t"] = many
    rig.commit("g", {("t", many - 1): 77, ("t", 0): 78})
    events = 0
    while effects.timers:
        [timer] = effects.timers
        effects = rig.take(rig.shard.on_timer(timer.key, rig.now_ms))
        assert len(effects.records) <= DOOMED_AT_ONCE_MAX
        events += 1
    assert events == 2
    assert offsets_of(rig.fetch("g", None)) == {("u", 0): 2, ("t", many - 1): 77, ("t", 0): 78}
    assert stored(rig.replayed()) == stored(rig.shard)


# -- deletion --------------------------------------------------------------------------------------


def delete_offsets(rig: ShardRig, group: str, topic: str, *indexes: int) -> Any:
    partitions = [OffsetDeleteRequestPartition(partition_index=i) for i in indexes]
    return rig.ask(
        OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        )
    )


def test_offsets_are_deleted() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1, ("t", 1): 2})
    answer = delete_offsets(rig, "g", "t", 0, 2, 9)
    assert answer.error_code == 0
    codes = [p.error_code for p in answer.topics[0].partitions]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets_of(rig.fetch("g", None)) == {("t", 1): 2}
    assert stored(rig.replayed()) == stored(rig.shard)
    assert delete_offsets(rig, "x", "t", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_leaves_nothing() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1, ("u", 1): 2})
    answer = rig.ask(DeleteGroupsRequest(groups_names=["g", "x"]))
    assert [r.error_code for r in answer.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert rig.shard.groups == {}
    assert stored(rig.shard) == set()
    rig.crash()
    assert rig.shard.groups == {}
    assert stored(rig.shard) == set()


# -- expiry ----------------------------------------------------------------------------------------


def test_offsets_of_a_group_without_members_expire_by_their_commit() -> None:
    rig = ShardRig(offsets_retention_minutes=10)
    rig.commit("g", {("t", 0): 1})
    rig.now_ms += 5 * MINUTE_MS
    rig.commit("g", {("t", 1): 2})
    rig.now_ms += 5 * MINUTE_MS - 1
    assert not rig.take(rig.shard.expire(rig.now_ms)).records
    rig.now_ms += 1
    rig.take(rig.shard.expire(rig.now_ms))
    assert offsets_of(rig.fetch("g", None)) == {("t", 1): 2}
    rig.now_ms += 5 * MINUTE_MS
    rig.take(rig.shard.expire(rig.now_ms))
    assert rig.shard.groups == {}, "a group with nothing left goes too"
    assert rig.replayed().groups == {}


def test_an_old_client_may_say_how_long_its_offset_is_kept() -> None:
    rig = ShardRig(offsets_retention_minutes=10)
    rig.commit("g", {("t", 0): 1}, version=2, retention_time_ms=MINUTE_MS)
    rig.commit("g", {("t", 1): 2}, version=2)
    rig.crash()
    rig.now_ms += MINUTE_MS
    rig.take(rig.shard.expire(rig.now_ms))
    assert offsets_of(rig.fetch("g", None)) == {("t", 1): 2}


# -- any order of events ---------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 99)),
        st.tuples(st.just("delete"), st.sampled_from("ab"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from("ab"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.just("a"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("crash"), st.just("a"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_a_replay_gives_what_memory_has(events: list[tuple[str, str, int, int]]) -> None:
    rig = ShardRig(offsets_retention_minutes=10)
    for what, group, number, offset in events:
        if what == "commit":
            assert rig.commit(group, {("t", number): offset}) == [0]
            assert rig.shard.offsets.get(group, "t", number).offset == offset  # type: ignore[union-attr]
        elif what == "delete":
            delete_offsets(rig, group, "t", number)
        elif what == "drop":
            rig.ask(DeleteGroupsRequest(groups_names=[group]))
        elif what == "wait":
            rig.now_ms += number * MINUTE_MS
            rig.take(rig.shard.expire(rig.now_ms))
        else:
            rig.crash()
        again = rig.replayed()
        assert stored(again) == stored(rig.shard)
        # A group that has lost its last offset is forgotten by the next round of expiry.
        with_offsets = {g for g in rig.shard.groups if rig.shard.offsets.has_any(g)}
        assert again.groups.keys() == with_offsets


def test_an_id_is_not_a_name() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1})
    assert rig.shard.offsets.get("g", "t", 0).topic_id == id_of("t")  # type: ignore[union-attr]
    rig.topics.counts["w"] = 1
    assert offsets_of(rig.fetch("g", {"w": [0]}, version=10)) == {("w", 0): -1}
