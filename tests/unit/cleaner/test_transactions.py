"""Transactions in a compacted log: aborted data goes, markers stay as long as they are needed."""

from __future__ import annotations

from typing import Any

from penstock.log.cleaner_job import ProducerEnd
from penstock.log.cleaner_worker import clean

DAY_MS = 86_400_000
NOBODY: list[ProducerEnd] = []


def kinds(log: Any) -> list[tuple[int, str]]:
    """(last offset, what) of every batch."""
    return [
        (
            header.last_offset,
            ("marker" if header.is_control else "data") if header.record_count else "empty",
        )
        for header, _ in log.batches()
    ]


def aborted(log: Any) -> list[tuple[int, int, int]]:
    return [
        (txn.producer_id, txn.first_offset, txn.last_offset)
        for segment in log.log.segments
        for txn in segment.txn_index.all()
    ]


def test_aborted_data_goes_and_the_marker_outlives_it(log: Any) -> None:
    log.put(("a", "committed"))
    log.transactional(1, 0, ("a", "aborted"), ("b", "aborted"))
    log.end(1, commit=False)
    log.put(("c", "1"))
    log.clean(NOBODY)
    assert log.pairs() == [(0, "a", "committed"), (4, "c", "1")]
    assert kinds(log) == [(0, "data"), (3, "marker"), (4, "data")]
    assert aborted(log) == [(1, 1, 3)]
    assert not log.batches()[1][0].has_delete_horizon

    log.put(("d", "1"))
    log.clean(NOBODY)
    marker = log.batches()[1][0]
    assert marker.has_delete_horizon
    assert marker.base_timestamp == log.now_ms + DAY_MS
    assert marker.is_control
    assert log.batches()[1][1][0].timestamp == log.now_ms
    assert aborted(log) == [], "no data is left to skip"

    log.now_ms += DAY_MS - 1
    log.put(("e", "1"))
    log.clean(NOBODY)
    assert (3, "marker") in kinds(log)

    log.now_ms += 1
    log.put(("f", "1"))
    log.clean(NOBODY)
    assert (3, "marker") not in kinds(log)
    assert [key for _, key, _ in log.pairs()] == ["a", "c", "d", "e", "f"]


def test_a_commit_marker_stays_while_data_of_its_transaction_does(log: Any) -> None:
    log.transactional(1, 0, ("a", "1"), ("b", "1"))
    log.end(1, commit=True)
    log.put(("a", "2"))
    for _ in range(3):
        log.now_ms += DAY_MS
        log.put(("x", "1"))
        log.clean(NOBODY)
        marker = next(h for h, _ in log.batches() if h.is_control)
        assert not marker.has_delete_horizon
    log.put(("b", "2"))
    log.clean(NOBODY)
    log.put(("y", "1"))
    log.clean(NOBODY)
    marker = next(h for h, _ in log.batches() if h.is_control)
    assert marker.has_delete_horizon
    log.now_ms += DAY_MS
    log.put(("z", "1"))
    log.clean(NOBODY)
    assert "marker" not in [what for _, what in kinds(log)]
    assert [(k, v) for _, k, v in log.pairs()] == [
        ("a", "2"),
        ("x", "1"),
        ("b", "2"),
        ("y", "1"),
        ("z", "1"),
    ]


def test_a_marker_does_not_stay_for_the_sake_of_an_earlier_transaction(log: Any) -> None:
    log.transactional(1, 0, ("a", "1"))
    log.end(1, commit=True)
    log.transactional(1, 1, ("b", "1"))
    log.end(1, commit=True)
    log.put(("b", "2"))
    log.clean(NOBODY)
    log.put(("c", "1"))
    log.clean(NOBODY)
    markers = [header for header, _ in log.batches() if header.is_control]
    assert [m.has_delete_horizon for m in markers] == [False, True]


def test_an_old_abort_is_not_taken_for_one_of_the_dirty_section(log: Any) -> None:
    log.put(("a", "old"))
    log.transactional(1, 0, ("a", "bad"))
    log.end(1, commit=False)
    log.clean(NOBODY)
    assert aborted(log) == [(1, 1, 2)]
    log.transactional(1, 1, ("a", "new"))
    log.end(1, commit=True)
    log.clean(NOBODY)
    assert [value for _, _, value in log.pairs()] == ["new"]


def test_an_aborted_value_never_displaces_a_committed_one(log: Any) -> None:
    log.transactional(1, 0, ("a", "good"))
    log.end(1, commit=True)
    log.transactional(1, 1, ("a", "bad"))
    log.end(1, commit=False)
    log.transactional(1, 2, ("b", "good"))
    log.end(1, commit=True)
    log.clean()
    assert [(k, v) for _, k, v in log.pairs()] == [("a", "good"), ("b", "good")]


def test_interleaved_transactions_are_told_apart(log: Any) -> None:
    log.transactional(1, 0, ("a", "one"))
    log.transactional(2, 0, ("b", "two"))
    log.transactional(1, 1, ("b", "one"))
    log.end(1, commit=False)
    log.transactional(2, 1, ("c", "two"))
    log.end(2, commit=True)
    log.clean()
    assert [(k, v) for _, k, v in log.pairs()] == [("b", "two"), ("c", "two")]
    assert aborted(log) == [(1, 0, 3)]


def test_nothing_at_or_above_the_last_stable_offset_is_cleaned(log: Any) -> None:
    log.put(("a", "1"))
    log.put(("a", "2"))
    log.log.roll()
    log.transactional(1, 0, ("b", "1"))
    log.put(("a", "3"))
    result = log.clean()
    assert result.end_offset == 2
    assert log.pairs() == [(1, "a", "2"), (2, "b", "1"), (3, "a", "3")]
    log.end(1, commit=True)
    log.clean()
    assert log.pairs() == [(2, "b", "1"), (3, "a", "3")]


def test_the_marker_of_cleaned_data_may_lie_beyond_the_cleaned_section(log: Any) -> None:
    log.put(("a", "1"))
    log.transactional(1, 0, ("a", "aborted"))
    log.log.roll()
    log.end(1, commit=False)
    job = log.job()
    assert job.first_uncleanable_offset == 2
    log.swap(clean(job, lambda _: None))
    assert log.pairs() == [(0, "a", "1")]
    assert aborted(log) == [(1, 1, 2)]


def test_a_transaction_over_two_segments_is_followed_into_the_second(log: Any) -> None:
    log.transactional(1, 0, ("a", "bad"))
    log.log.roll()
    log.transactional(1, 1, ("b", "bad"))
    log.end(1, commit=False)
    log.put(("c", "1"))
    log.clean()
    assert [k for _, k, _ in log.pairs()] == ["c"]


def test_the_state_of_active_transactional_producers_survives(log: Any) -> None:
    log.transactional(1, 0, ("a", "bad"))
    log.end(1, commit=False)
    log.put(("c", "1"))
    for _ in range(3):
        log.clean()
        assert kinds(log)[:2] == [(0, "empty"), (1, "marker")]
        log.put(("c", "2"))
    empty = log.batches()[0][0]
    assert (empty.producer_id, empty.last_sequence, empty.is_transactional) == (1, 0, True)


def test_the_last_marker_of_a_producer_without_data_stays_for_its_epoch(log: Any) -> None:
    log.transactional(1, 0, ("a", "bad"))
    log.end(1, commit=False)
    log.put(("c", "1"))
    only_epoch = [ProducerEnd(producer_id=1, producer_epoch=0, last_data_offset=-1)]
    log.clean(only_epoch)
    for _ in range(3):
        log.now_ms += 2 * DAY_MS
        log.put(("c", "2"))
        log.clean(only_epoch)
    trace = log.batches()[0][0]
    assert (trace.is_control, trace.record_count, trace.producer_epoch) == (True, 0, 0)
