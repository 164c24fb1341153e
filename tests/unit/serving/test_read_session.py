"""Incremental fetch sessions: who gets one, what an epoch admits, and that only news is sent."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.read_session import (
    EPOCH_MAX,
    EVICTION_IDLE_MS_MIN,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchPartition,
    FetchSession,
    FetchSessionCache,
    ReadContext,
)
from penstock.wire.fetch_codec import PartitionData

NOW = 1_000_000


def wanted(*indexes: int, topic: Any = "t", offset: int = 0, max_bytes: int = 100) -> list[Any]:
    return [FetchPartition(topic, index, offset, max_bytes, -1) for index in indexes]


class Sessions:
    """A cache and the one client that most of these tests need."""

    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots, Random(1).randrange)
        self.now = NOW

    def ask(
        self,
        session_id: int,
        epoch: int,
        partitions: list[FetchPartition] | None = None,
        forgotten: list[Any] | None = None,
        *,
        by_topic_id: bool = False,
    ) -> ReadContext:
        return self.cache.context(
            session_id,
            epoch,
            partitions or [],
            forgotten or [],
            by_topic_id=by_topic_id,
            now_ms=self.now,
        )

    def open(self, *indexes: int, **how: Any) -> FetchSession:
        return self.ask(0, INITIAL_EPOCH, wanted(*indexes), **how).session

    def refusal(self, *args: Any, **how: Any) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.ask(*args, **how)
        return caught.value.code


def indexes(context: ReadContext) -> list[int]:
    return [p.index for p in context.to_check()]


def test_a_full_request_opens_a_session() -> None:
    sessions = Sessions()
    context = sessions.ask(0, INITIAL_EPOCH, wanted(0, 1, 2))
    assert context.session_id > 0
    assert not context.incremental
    assert indexes(context) == [0, 1, 2]
    assert len(sessions.cache) == 1
    assert sessions.cache.partition_count == 3


def test_a_request_without_a_session() -> None:
    """Old versions, and clients that want none, say epoch -1."""
    sessions = Sessions()
    context = sessions.ask(0, FINAL_EPOCH, wanted(0, 1))
    assert (context.session_id, context.incremental, indexes(context)) == (0, False, [0, 1])
    assert len(sessions.cache) == 0


def test_an_incremental_request_names_only_what_changes() -> None:
    sessions = Sessions()
    session = sessions.open(0, 1, 2)
    context = sessions.ask(session.id, 1, wanted(1, offset=7, max_bytes=9) + wanted(3))
    assert context.incremental
    assert context.session_id == session.id
    assert indexes(context) == [0, 1, 2, 3]
    changed = context.to_check()[1]
    assert (changed.fetch_offset, changed.max_bytes) == (7, 9)
    context = sessions.ask(session.id, 2)
    assert [p.fetch_offset for p in context.to_check()] == [0, 7, 0, 0]


def test_forgotten_partitions_are_gone_and_can_come_back() -> None:
    sessions = Sessions()
    session = sessions.open(0, 1, 2)
    session.partitions[("t", 1)].sent_high_watermark = 55
    forgotten = [("t", 1), ("t", 77), ("other", 0)]
    assert indexes(sessions.ask(session.id, 1, [], forgotten)) == [0, 2]
    context = sessions.ask(session.id, 2, wanted(1))
    assert indexes(context) == [0, 2, 1]
    # It is told anew, as the client has forgotten what it knew.
    assert context.to_check()[2].sent_high_watermark == -1


def test_a_session_that_forgets_everything_is_closed() -> None:
    sessions = Sessions()
    session = sessions.open(0)
    context = sessions.ask(session.id, 1, [], [("t", 0)])
    assert (context.session_id, context.to_check()) == (0, [])
    assert len(sessions.cache) == 0
    assert sessions.refusal(session.id, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_must_follow_each_other() -> None:
    sessions = Sessions()
    session = sessions.open(0)
    assert sessions.refusal(session.id, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.ask(session.id, 1)
    for wrong in (1, 3, EPOCH_MAX):
        assert sessions.refusal(session.id, wrong) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.ask(session.id, 2)
    assert sessions.refusal(session.id + 1, 3) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.refusal(0, 3) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_to_one() -> None:
    sessions = Sessions()
    session = sessions.open(0)
    session.epoch = EPOCH_MAX
    sessions.ask(session.id, EPOCH_MAX)
    sessions.ask(session.id, 1)
    assert sessions.refusal(session.id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_final_epoch_closes_the_session() -> None:
    sessions = Sessions()
    session = sessions.open(0)
    context = sessions.ask(session.id, FINAL_EPOCH)
    assert (context.session_id, context.incremental) == (0, False)
    assert sessions.refusal(session.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_request_with_an_id_replaces_the_session() -> None:
    sessions = Sessions()
    old = sessions.open(0, 1)
    new = sessions.ask(old.id, INITIAL_EPOCH, wanted(5))
    assert new.session_id not in (0, old.id)
    assert indexes(new) == [5]
    assert len(sessions.cache) == 1


@pytest.mark.parametrize("by_topic_id", [False, True])
def test_names_and_ids_do_not_mix_in_a_session(by_topic_id: bool) -> None:
    sessions = Sessions()
    session = sessions.open(0, by_topic_id=by_topic_id)
    code = sessions.refusal(session.id, 1, by_topic_id=not by_topic_id)
    assert code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    # The refusal has used nothing up.
    assert indexes(sessions.ask(session.id, 1, by_topic_id=by_topic_id)) == [0]


def test_a_full_cache_grants_none_until_one_has_been_idle() -> None:
    sessions = Sessions(slots=2)
    first, second = sessions.open(0), sessions.open(0)
    context = sessions.ask(0, INITIAL_EPOCH, wanted(4))
    assert (context.session_id, indexes(context)) == (0, [4])
    assert sessions.cache.evicted_total == 0
    sessions.now += EVICTION_IDLE_MS_MIN - 1
    sessions.ask(first.id, 1)
    assert sessions.ask(0, INITIAL_EPOCH, wanted(4)).session_id == 0
    sessions.now += 1
    third = sessions.open(4)
    assert sessions.cache.evicted_total == 1
    assert sessions.refusal(second.id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert indexes(sessions.ask(first.id, 2)) == [0]
    assert indexes(sessions.ask(third.id, 1)) == [4]
    assert len(sessions.cache) == 2


def test_no_slots_mean_no_sessions() -> None:
    sessions = Sessions(slots=0)
    assert sessions.ask(0, INITIAL_EPOCH, wanted(0)).session_id == 0


def test_ids_differ_although_chance_repeats() -> None:
    numbers = iter([7, 7, 7, 8])
    cache = FetchSessionCache(10, lambda n: next(numbers))
    ids = [
        cache.context(0, 0, wanted(0), [], by_topic_id=False, now_ms=0).session_id for _ in range(2)
    ]
    assert ids == [8, 9]


def test_partitions_that_gave_records_go_to_the_end() -> None:
    sessions = Sessions()
    session = sessions.open(0, 1, 2)
    session.served(session.partitions["t", 0])
    [stranger] = wanted(99)
    session.served(stranger)
    assert indexes(sessions.ask(session.id, 1)) == [1, 2, 0]


def test_only_news_is_told() -> None:
    [partition] = wanted(0)
    quiet = PartitionData(0, high_watermark=5, last_stable_offset=5, log_start_offset=0)
    assert partition.has_news(quiet)
    assert not partition.has_news(quiet)
    assert partition.has_news(quiet._replace(high_watermark=6))
    assert partition.has_news(quiet._replace(high_watermark=6, log_start_offset=2))
    settled = quiet._replace(high_watermark=6, log_start_offset=2)
    assert not partition.has_news(settled)
    assert partition.has_news(settled._replace(records=b"r"))
    assert partition.has_news(settled._replace(preferred_read_replica=3))
    assert partition.has_news(settled._replace(diverging_end_offset=3))
    assert not partition.has_news(settled)


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    [partition] = wanted(0)
    fine = PartitionData(0, high_watermark=5, last_stable_offset=5, log_start_offset=0)
    broken = PartitionData(0, error_code=56)
    partition.has_news(fine)
    assert partition.has_news(broken)
    assert partition.has_news(broken)
    assert partition.has_news(fine)
    assert not partition.has_news(fine)


keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))


@given(st.lists(st.tuples(st.lists(keys, max_size=4), st.lists(keys, max_size=4)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_session_holds_what_was_wanted_and_not_forgotten(
    steps: list[tuple[list[tuple[str, int]], list[tuple[str, int]]]],
) -> None:
    sessions = Sessions()
    session = sessions.ask(0, INITIAL_EPOCH, wanted(0, topic="start")).session
    expected = {("start", 0): 0}
    for epoch, (added, forgotten) in enumerate(steps, 1):
        partitions = [FetchPartition(topic, i, epoch, 1, -1) for topic, i in added]
        context = sessions.ask(session.id, epoch, partitions, list(forgotten))
        expected |= dict.fromkeys(added, epoch)
        for key in forgotten:
            expected.pop(key, None)
        assert {(p.topic, p.index): p.fetch_offset for p in context.to_check()} == expected
