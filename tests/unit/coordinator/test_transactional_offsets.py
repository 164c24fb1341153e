"""Offsets in transactions: who may store them, who sees them when, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.coordinator.config import MINUTE_MS
from penstock.coordinator.effects import EndTxnMarker, ProducerIdentity
from penstock.coordinator.refusals import refuse
from penstock.coordinator.transactional_offsets import OffsetPlace
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from unit.coordinator.rig import ShardRig, id_of, pending, stored
from unit.coordinator.test_offsets import delete_offsets, offsets_of
from unit.coordinator.test_shard import heartbeat, joined

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def stable_codes(rig: ShardRig, group: str, topics: dict[str, list[int]] | None) -> list[int]:
    found = rig.fetch(group, topics, require_stable=True)
    assert found.error_code == 0
    return [p.error_code for t in found.topics for p in t.partitions]


def same_after_replay(rig: ShardRig) -> None:
    again = rig.replayed()
    assert stored(again) == stored(rig.shard)
    assert pending(again) == pending(rig.shard)


# -- the life of a pending offset ------------------------------------------------------------------


@pytest.mark.parametrize("version", TxnOffsetCommitRequest.VERSIONS)
def test_offsets_are_seen_when_the_transaction_commits(version: int) -> None:
    rig = ShardRig()
    assert rig.txn_commit("g", {("t", 0): 5, ("u", 1): 7}, version=version, metadata="m") == [0, 0]
    assert offsets_of(rig.fetch("g", {"t": [0], "u": [1]})) == {("t", 0): -1, ("u", 1): -1}
    same_after_replay(rig)
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 5, ("u", 1): 7}
    [topic] = rig.fetch("g", {"t": [0]}).topics
    assert (topic.partitions[0].metadata, topic.partitions[0].committed_leader_epoch) == ("m", 5)
    assert pending(rig.shard) == {}
    same_after_replay(rig)


def test_offsets_of_an_aborted_transaction_are_never_seen() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1})
    rig.txn_commit("g", {("t", 0): 5, ("t", 1): 6})
    rig.end(commit=False)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 1}
    assert stable_codes(rig, "g", {"t": [0, 1]}) == [0, 0]
    assert pending(rig.shard) == {}
    same_after_replay(rig)


def test_the_records_are_one_batch_of_the_producer() -> None:
    rig = ShardRig()
    request = TxnOffsetCommitRequest(
        group_id="g",
        producer_id=17,
        producer_epoch=3,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
            )
        ],
    )
    effects = rig.send(request)
    assert effects.producer == ProducerIdentity(17, 3)
    assert len(effects.records) == 1
    marker = EndTxnMarker(17, 4, 9, commit=True)
    effects = rig.shard.end_transaction(marker, rig.now_ms)
    assert (effects.marker, effects.records, effects.replies) == (marker, [], [])


def test_a_marker_without_offsets_changes_nothing() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1})
    rig.txn_commit("g", {("t", 0): 5}, producer_id=2)
    rig.end(commit=True, producer_id=1)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 1}
    assert [producer for producer, _ in pending(rig.shard)] == [2]


def test_the_last_offset_of_a_transaction_counts() -> None:
    rig = ShardRig()
    rig.txn_commit("g", {("t", 0): 5})
    rig.txn_commit("g", {("t", 0): 3})
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 3}


def test_one_transaction_with_offsets_of_several_groups() -> None:
    rig = ShardRig()
    rig.txn_commit("g", {("t", 0): 5})
    rig.txn_commit("h", {("t", 0): 6})
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 5}
    assert offsets_of(rig.fetch("h", None)) == {("t", 0): 6}


# -- which of several counts: the later record, whatever ended first -------------------------------


def test_a_commit_after_a_pending_offset_stays() -> None:
    rig = ShardRig()
    rig.txn_commit("g", {("t", 0): 5, ("t", 1): 6})
    rig.commit("g", {("t", 0): 9})
    assert stable_codes(rig, "g", {"t": [0]}) == [UNSTABLE]
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 9, ("t", 1): 6}
    same_after_replay(rig)


def test_a_pending_offset_after_a_commit_takes_its_place() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 9})
    rig.txn_commit("g", {("t", 0): 5})
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 5}


def test_of_two_transactions_the_later_record_counts() -> None:
    rig = ShardRig()
    rig.txn_commit("g", {("t", 0): 5}, producer_id=1)
    rig.txn_commit("g", {("t", 0): 6}, producer_id=2)
    rig.end(commit=True, producer_id=2)
    assert stable_codes(rig, "g", {"t": [0]}) == [UNSTABLE]
    rig.end(commit=True, producer_id=1)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 6}
    same_after_replay(rig)


def test_what_a_tombstone_took_back_does_not_hide_a_later_offset() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 9})
    delete_offsets(rig, "g", "t", 0)
    rig.txn_commit("g", {("t", 0): 5})
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 5}
    same_after_replay(rig)


# -- stable offsets --------------------------------------------------------------------------------


def test_whoever_wants_stable_offsets_is_told_to_wait() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1, ("t", 1): 2})
    rig.txn_commit("g", {("t", 0): 5, ("t", 2): 7})
    found = rig.fetch("g", {"t": [0, 1, 2, 3]}, require_stable=True)
    [topic] = found.topics
    assert [(p.error_code, p.committed_offset) for p in topic.partitions] == [
        (UNSTABLE, -1),
        (0, 2),
        (UNSTABLE, -1),
        (0, -1),
    ]
    assert topic.partitions[0].committed_leader_epoch == -1
    assert topic.partitions[0].metadata == ""
    # All offsets of a group are those that are committed, stable or not.
    assert stable_codes(rig, "g", None) == [UNSTABLE, 0]
    assert offsets_of(rig.fetch("g", {"t": [0, 2]})) == {("t", 0): 1, ("t", 2): -1}
    assert stable_codes(rig, "other", {"t": [0]}) == [0]
    rig.end(commit=False)
    assert stable_codes(rig, "g", {"t": [0, 1, 2]}) == [0, 0, 0]


def test_a_topic_by_its_id_is_unstable_too() -> None:
    rig = ShardRig()
    rig.txn_commit("g", {("t", 0): 5})
    [topic] = rig.fetch("g", {"t": [0]}, require_stable=True, version=10).topics
    assert topic.partitions[0].error_code == UNSTABLE


# -- who may commit --------------------------------------------------------------------------------


def test_a_group_that_is_not_there() -> None:
    rig = ShardRig()
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert rig.txn_commit("g", {("t", 0): 1}, generation_id=0, member_id="m") == [illegal]
    assert rig.txn_commit("", {("t", 0): 1}) == [ErrorCode.INVALID_GROUP_ID]
    assert rig.shard.groups == {}
    assert not rig.log


def test_a_transaction_alone_makes_a_group() -> None:
    rig = ShardRig()
    assert rig.txn_commit("g", {("t", 0): 1}) == [0]
    for shard in (rig.shard, rig.replayed()):
        assert shard.groups.keys() == {"g"}
    [listed] = rig.ask(ListGroupsRequest()).groups
    assert (listed.group_type, listed.group_state, listed.protocol_type) == ("classic", "Empty", "")
    rig.end(commit=False)
    rig.take(rig.shard.expire(rig.now_ms))
    assert rig.shard.groups == {}


def test_members_of_a_classic_group() -> None:
    rig = ShardRig()
    member = joined(rig)
    good: dict[str, Any] = {"member_id": member, "generation_id": 1}
    assert rig.txn_commit("g", {("t", 0): 1}, **good) == [0]
    assert rig.txn_commit("g", {("t", 0): 1}, **{**good, "generation_id": 0}) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert rig.txn_commit("g", {("t", 0): 1}, **{**good, "member_id": "x"}) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert rig.txn_commit("g", {("t", 0): 1}, **good, group_instance_id="i") == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    # An old client does not say who it is; nor need a new one.
    assert rig.txn_commit("g", {("t", 0): 1}, version=2) == [0]
    assert rig.txn_commit("g", {("t", 0): 1}, version=5) == [0]
    assert rig.commit("g", {("t", 0): 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_members_of_a_consumer_group() -> None:
    rig = ShardRig()
    epoch = heartbeat(rig, "g", member_id="m").member_epoch
    good: dict[str, Any] = {"member_id": "m", "generation_id": epoch}
    assert rig.txn_commit("g", {("t", 0): 1}, **good) == [0]
    for wrong in (epoch + 1, 0):
        assert rig.txn_commit("g", {("t", 0): 1}, **{**good, "generation_id": wrong}) == [
            ErrorCode.ILLEGAL_GENERATION
        ]
    assert rig.txn_commit("g", {("t", 0): 1}, **{**good, "member_id": "x"}) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    assert rig.txn_commit("g", {("t", 0): 1}, version=0) == [0]
    assert rig.txn_commit("g", {("t", 0): 1}, version=5) == [0]


def test_topics_that_are_not_there() -> None:
    rig = ShardRig()
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.txn_commit("g", {("t", 0): 1, ("x", 0): 1, ("t", 4): 1, ("t", -1): 1}) == [
        0,
        missing,
        missing,
        missing,
    ]
    # What is missing is said to be missing, whatever the group says.
    assert rig.txn_commit("g", {("t", 4): 1, ("t", 1): 1}, generation_id=4, member_id="m") == [
        missing,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert rig.txn_commit("h", {("x", 0): 1}, generation_id=4, member_id="m") == [missing]


def test_a_metadata_text_beyond_its_limit() -> None:
    rig = ShardRig(offset_metadata_max_bytes=4)
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert rig.txn_commit("g", {("t", 0): 1}, metadata="12345") == [too_large]
    assert rig.shard.groups == {}
    assert rig.txn_commit("g", {("t", 0): 1}, metadata="1234") == [0]


def test_offsets_carry_the_id_of_their_topic() -> None:
    rig = ShardRig()
    rig.txn_commit("g", {("t", 0): 1})
    rig.end(commit=True)
    assert rig.shard.offsets.get("g", "t", 0).topic_id == id_of("t")  # type: ignore[union-attr]


@pytest.mark.parametrize("version", TxnOffsetCommitRequest.VERSIONS)
def test_a_shard_that_is_being_loaded(version: int) -> None:
    request = TxnOffsetCommitRequest(
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
            )
        ]
    )
    answer: Any = refuse(request, version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    expected = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
        if version < 2
        else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    assert answer.topics[0].partitions[0].error_code == expected


# -- the end of offsets and groups that are in a transaction ---------------------------------------


def test_deleted_offsets_do_not_come_back_with_the_marker() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1})
    rig.txn_commit("g", {("t", 0): 5, ("t", 1): 6, ("t", 2): 7})
    answer = delete_offsets(rig, "g", "t", 0, 1, 3)
    assert [p.error_code for p in answer.topics[0].partitions] == [0, 0, 0]
    same_after_replay(rig)
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {("t", 2): 7}
    same_after_replay(rig)


def test_a_deleted_group_does_not_come_back_with_the_marker() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1})
    rig.txn_commit("g", {("t", 0): 5, ("t", 1): 6})
    rig.txn_commit("h", {("t", 0): 8})
    [result] = rig.ask(DeleteGroupsRequest(groups_names=["g"])).results
    assert result.error_code == 0
    assert set(pending(rig.shard)) == {(1, OffsetPlace("h", "t", 0))}
    same_after_replay(rig)
    rig.end(commit=True)
    assert offsets_of(rig.fetch("g", None)) == {}
    assert rig.shard.groups.keys() == rig.replayed().groups.keys() == {"h"}


def test_offsets_in_a_deleted_topic_do_not_come_back_with_the_marker() -> None:
    rig = ShardRig()
    rig.commit("g", {("t", 0): 1})
    rig.txn_commit("g", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7})
    rig.txn_commit("g", {("t", 1): 6}, producer_id=2)
    del rig.topics.counts["t"]
    records = rig.take(rig.shard.topics_deleted(frozenset({"t"}))).records
    assert len(records) == 2, "one tombstone for each partition"
    same_after_replay(rig)
    rig.end(commit=True)
    rig.end(commit=True, producer_id=2)
    assert offsets_of(rig.fetch("g", None)) == {("u", 0): 7}


def test_nothing_expires_below_an_open_transaction() -> None:
    rig = ShardRig(offsets_retention_minutes=10)
    rig.commit("g", {("t", 0): 1, ("t", 1): 2})
    rig.txn_commit("g", {("t", 0): 5})
    rig.txn_commit("h", {("t", 0): 5})
    rig.now_ms += 10 * MINUTE_MS
    rig.take(rig.shard.expire(rig.now_ms))
    assert offsets_of(rig.fetch("g", None)) == {("t", 0): 1}
    assert rig.shard.groups.keys() == {"g", "h"}
    rig.end(commit=False)
    rig.take(rig.shard.expire(rig.now_ms))
    assert rig.shard.groups == {}
    same_after_replay(rig)


def test_an_offset_expires_by_its_commit_not_by_its_marker() -> None:
    rig = ShardRig(offsets_retention_minutes=10)
    rig.txn_commit("g", {("t", 0): 5})
    rig.now_ms += 10 * MINUTE_MS
    rig.end(commit=True)
    rig.take(rig.shard.expire(rig.now_ms))
    assert offsets_of(rig.fetch("g", None)) == {}


# -- any order of events ---------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from("ab"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("txn"), st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("end"), st.booleans(), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.sampled_from("ab"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from("ab"), st.just(0), st.just(0)),
        st.tuples(st.just("topic"), st.just("t"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(EVENTS)
def test_a_replay_gives_what_memory_has(events: list[tuple[str, Any, int, int]]) -> None:
    rig = ShardRig(offsets_retention_minutes=10)
    for number, (what, group, partition, producer) in enumerate(events):
        if what == "commit":
            assert rig.commit(group, {("t", partition): number}) == [0]
        elif what == "txn":
            how = {"producer_id": producer}
            assert rig.txn_commit(group, {("t", partition): number}, **how) == [0]
        elif what == "end":
            rig.end(group, producer)
        elif what == "delete":
            delete_offsets(rig, group, "t", partition)
        elif what == "drop":
            rig.ask(DeleteGroupsRequest(groups_names=[group]))
        elif what == "topic":
            rig.take(rig.shard.topics_deleted(frozenset({"t"})))
        elif what == "wait":
            rig.now_ms += partition * MINUTE_MS
            rig.take(rig.shard.expire(rig.now_ms))
        else:
            rig.crash()
        same_after_replay(rig)
        held = {g for g in rig.shard.groups if rig.shard.offsets.has_any(g)}
        assert rig.replayed().groups.keys() == held
