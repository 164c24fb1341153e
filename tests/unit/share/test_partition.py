"""A share-partition: limits, damage, and what the driver reads from it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, ErrorCode, InvariantBroken
from penstock.coordinator.share_state.batches import combined
from penstock.share.acquiring import WINDOW_SPAN_MAX, stretches_and_gaps
from penstock.share.loading import LOADED_SPAN_MAX
from penstock.share.partition import (
    AckBatch,
    Acquired,
    AcquireMode,
    RecordRun,
    ShareLimits,
    SharePartition,
    without,
)
from penstock.share.types import UNINITIALIZED_START, ShareState, StateBatch
from penstock.share.values import BackoffType, RetryBackoff

LIMITS = ShareLimits(2_000, 5, 30_000, True)
ACCEPT = [1]


def made(*batches: StateBatch, start: int = 0, limits: ShareLimits = LIMITS) -> SharePartition:
    return SharePartition(limits, ShareState(3, start, 0, batches), -1)


def acquire(
    partition: SharePartition, *batches: tuple[int, int], member: str = "m", **wanted: Any
) -> list[Acquired]:
    asked: dict[str, Any] = {
        "fetch_offset": partition.next_fetch_offset,
        "max_records": 1_000_000,
        "batch_size": 1_000_000,
        "mode": AcquireMode.BATCH_OPTIMIZED,
        "members": 1,
        "now_ms": 0,
    }
    acquired, _ = partition.acquire(member, batches, **(asked | wanted))
    partition.invariants()
    return acquired


def accept(partition: SharePartition, first: int, last: int, member: str = "m") -> None:
    change = partition.acknowledge(member, [AckBatch(first, last, ACCEPT)], 1)
    assert change is not None
    partition.written(change, 2)
    partition.invariants()


# -- loading -----------------------------------------------------------------------------------


def test_the_leader_says_where_to_begin_if_nothing_is_persisted() -> None:
    state = ShareState(3, UNINITIALIZED_START, 0, [])
    partition = SharePartition(LIMITS, state, 77)
    assert (partition.start_offset, partition.end_offset, partition.state_epoch) == (77, 76, 3)
    assert partition.next_fetch_offset == 77


def test_a_persisted_start_is_where_it_begins() -> None:
    assert SharePartition(LIMITS, ShareState(0, 5, 0, []), 77).start_offset == 5


def test_loaded_records() -> None:
    partition = made(
        StateBatch(20, 29, 2, 1), StateBatch(0, 4, 4, 3), StateBatch(5, 9, 0, 2), start=0
    )
    assert partition.describe() == [
        RecordRun(5, 9, "AVAILABLE", 2, ""),
        RecordRun(10, 19, "UNSEEN", 0, ""),
        RecordRun(20, 29, "ACKNOWLEDGED", 1, ""),
    ]
    assert partition.delivery_complete_count == 10
    assert partition.available == 15


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(0, 4, 2, 1)],  # below the start
        [StateBatch(12, 11, 2, 1)],
        [StateBatch(10, 14, 2, 1), StateBatch(14, 15, 2, 1)],
        [StateBatch(10, 14, 1, 1)],  # acquired is never persisted
        [StateBatch(10, 14, 5, 1)],
        [StateBatch(10, 14, 2, -1)],
        [StateBatch(10, 10 + LOADED_SPAN_MAX, 0, 1)],
        [StateBatch(10 + LOADED_SPAN_MAX, 10 + LOADED_SPAN_MAX, 2, 1)],
    ],
)
def test_a_damaged_state_is_refused(batches: list[StateBatch]) -> None:
    with pytest.raises(ApiError) as refused:
        made(*batches, start=10)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_count_beyond_what_is_kept_is_the_highest() -> None:
    assert made(StateBatch(0, 1, 0, 3_000)).describe()[0].delivery_count == 255


# -- limits ------------------------------------------------------------------------------------


def test_the_window_slides_while_its_first_record_is_held() -> None:
    partition = made(limits=LIMITS._replace(record_locks_max=10_000))
    assert acquire(partition, (0, 0), member="slow")
    for base in range(1, 3 * WINDOW_SPAN_MAX, 10_000):
        ((first, last, _),) = acquire(partition, (base, base + 9_999))
        accept(partition, first, last)
    assert partition.start_offset == 0
    assert partition.in_flight == 3 * WINDOW_SPAN_MAX + 1
    assert len(partition._window) <= WINDOW_SPAN_MAX + 10_000, "what is done takes no memory"
    assert partition.delivery_complete_count == 3 * WINDOW_SPAN_MAX
    accept(partition, 0, 0, member="slow")
    assert partition.start_offset == 3 * WINDOW_SPAN_MAX + 1


@pytest.mark.uncompiled  # limits are constants there
def test_the_window_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other record is rejected, and no dead letter can be written."""
    monkeypatch.setattr("penstock.share.partition.WINDOW_SPAN_MAX", 10_000)
    limits = LIMITS._replace(dead_letters=True)
    partition = made(limits=limits)
    offset = 0
    while partition.may_acquire("m", 1):
        ((first, last, _),) = acquire(partition, (offset, offset + 999))
        change = partition.acknowledge("m", [AckBatch(first, last, [3, 1] * 500)], 1)
        assert change is not None
        partition.written(change, 2)
        offset = last + 1
    assert partition.in_flight == offset == 10_000
    assert partition.waiting_dead_letters == 5_000
    taken = partition.dead_letters(1_000_000)
    assert partition.dead_letters_written([letter[:2] for letter in taken], 3) is not None
    assert partition.start_offset == offset
    assert acquire(partition, (offset, offset + 9))


def test_a_wide_gap_waits_until_the_window_is_empty() -> None:
    partition = made()
    acquire(partition, (0, 9))
    far = 5 * WINDOW_SPAN_MAX
    assert acquire(partition, (far, far + 9)) == []
    assert partition.end_offset == 9
    accept(partition, 0, 9)
    assert acquire(partition, (far, far + 9)) == [Acquired(far, far + 9, 1)]
    assert partition.start_offset == far


def test_a_record_batch_may_be_wider_than_the_window() -> None:
    """Compaction leaves batches that span more offsets than they have records."""
    wide = 3 * WINDOW_SPAN_MAX
    partition = made()
    assert acquire(partition, (0, wide)) == [Acquired(0, wide, 1)]
    accept(partition, 0, wide)
    assert partition.start_offset == wide + 1


def test_a_lower_limit_does_not_lock_out_what_is_free() -> None:
    partition = made(StateBatch(0, 9, 0, 1), limits=LIMITS._replace(record_locks_max=4))
    assert partition.may_acquire("m", 3)
    assert acquire(partition, (0, 1), (2, 3), (4, 9), members=3) == [Acquired(0, 3, 2)]
    assert acquire(partition, (4, 9), members=1) == [Acquired(4, 9, 2)]
    assert not partition.may_acquire("m", 3)
    assert acquire(partition, (10, 11), members=3) == []


def test_records_beyond_the_next_fetch_offset_are_a_bug() -> None:
    with pytest.raises(InvariantBroken):
        acquire(made(), (10, 19), fetch_offset=10)


def test_nothing_is_acquired_of_nothing() -> None:
    partition = made(start=10)
    assert acquire(partition) == []
    assert acquire(partition, (10, 19), max_records=0) == []
    assert acquire(partition, (0, 9), fetch_offset=0) == []
    assert partition.in_flight == 0


def test_a_read_may_begin_before_the_start() -> None:
    partition = made(start=5)
    assert acquire(partition, (0, 9)) == [Acquired(5, 9, 1)]


def test_a_range_may_begin_before_all_offsets() -> None:
    """As in Kafka: what lies below the start is done, whatever it is."""
    partition = made()
    acquire(partition, (0, 9))
    accept(partition, -1, 2)
    assert partition.start_offset == 3


def test_the_members_that_hold_records() -> None:
    partition = made()
    acquire(partition, (0, 9), member="a")
    acquire(partition, (10, 14), member="b")
    accept(partition, 0, 2, member="a")
    assert partition.held_by_member() == {"a": 7, "b": 5}
    assert (partition.held, partition.in_flight_batches) == (12, 2)


def test_times_that_ran_out_are_counted() -> None:
    partition = made()
    acquire(partition, (0, 9))
    assert partition.expire(29_999) is None
    assert partition.expire(30_000) is not None
    assert partition.timed_out == 10
    assert partition.next_deadline_ms is None


# -- records that rest -------------------------------------------------------------------------


RETRY = RetryBackoff(BackoffType.CONSTANT, 1_000, 1, 1_000)


@pytest.mark.parametrize(
    ("kind", "multiplier", "pauses"),
    [
        (BackoffType.CONSTANT, 3, [100, 100, 100, 100]),
        (BackoffType.LINEAR, 3, [100, 200, 300, 400]),
        (BackoffType.EXPONENTIAL, 3, [100, 300, 900, 1_000]),
        (BackoffType.EXPONENTIAL, 1.5, [100, 150, 225, 337]),
    ],
)
def test_how_long_a_record_rests(kind: BackoffType, multiplier: float, pauses: list[int]) -> None:
    backoff = RetryBackoff(kind, 100, multiplier, 1_000)
    assert [backoff.pause_ms(count) for count in (1, 2, 3, 4)] == pauses
    assert backoff._replace(multiplier=10).pause_ms(255) <= 1_000


def test_thousands_of_parked_records_do_not_stop_others() -> None:
    partition = made(limits=LIMITS._replace(record_locks_max=100, retry=RETRY))
    for base in range(0, 6_000, 100):
        assert partition.may_acquire("m", 1)
        assert acquire(partition, (base, base + 99)) == [Acquired(base, base + 99, 1)]
        change = partition.acknowledge("m", [AckBatch(base, base + 99, [2])], 1)
        assert change is not None
        partition.written(change, base // 100)
    assert (partition.parked, partition.available, partition.held) == (6_000, 0, 0)
    assert acquire(partition, (6_000, 6_009)) == [Acquired(6_000, 6_009, 1)]
    # All of it waits for one time after another, not for one each.
    assert partition.next_deadline_ms == 1_000
    times = 0
    while partition.parked:
        assert (now := partition.next_deadline_ms) is not None
        assert partition.expire(now) is None
        times += 1
    assert times == 7
    assert partition.available == 6_000


@pytest.mark.uncompiled  # limits are constants there
def test_too_many_parked_records_are_free_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.share.parking.PARKED_RECORDS_MAX", 5)
    partition = made(limits=LIMITS._replace(retry=RETRY))
    acquire(partition, (0, 9))
    for first, last in ((0, 3), (4, 6), (7, 7)):
        change = partition.acknowledge("m", [AckBatch(first, last, [2])], 1)
        assert change is not None
        partition.written(change, 2)
    assert [row.state for row in partition.describe()] == [
        "PARKED", "AVAILABLE", "PARKED", "ACQUIRED"
    ]  # fmt: skip


# -- what is revived ---------------------------------------------------------------------------


def test_records_far_below_the_start_take_little_memory() -> None:
    far = 500_000_000
    partition = made(start=far)
    ranges = [(offset, offset) for offset in range(0, far, far // 200)]
    assert partition.revivable(ranges) == 200
    change = partition.revive(ranges)
    assert change is not None
    partition.written(change, 1)
    partition.invariants()
    assert (partition.start_offset, partition.end_offset) == (0, far - 1)
    assert partition.delivery_complete_count == far - 200
    assert len(partition._window) == 400
    again = made(*combined([], change.batches, change.start_offset), start=change.start_offset)
    assert again.describe() == partition.describe()
    for first, _ in ranges:
        assert partition.next_fetch_offset == first
        assert acquire(partition, (first, first + 5)) == [Acquired(first, first, 1)]
        accept(partition, first, first)
    assert partition.start_offset == far
    assert partition.end_offset == far - 1


def test_reviving_is_refused_where_the_count_could_not_be_persisted() -> None:
    partition = made(start=2**31)
    with pytest.raises(ApiError, match="records back"):
        partition.revivable([(0, 0)])
    assert partition.start_offset == 2**31


def test_what_was_done_before_stands_over_what_is_persisted() -> None:
    """A record is archived and the start moves past it; both are in the same write as a revival
    that moves the start back.
    """
    partition = made(StateBatch(100, 100, 0, 4), start=100)
    stored = [StateBatch(100, 100, 0, 4)]
    acquire(partition, (100, 100))
    over = partition.expire(30_000)
    revived = partition.revive([(5, 5)])
    assert over is not None
    assert revived is not None
    stored = combined(stored, [*over.batches, *revived.batches], partition.start_offset)
    assert stored == [StateBatch(5, 5, 0, 0), StateBatch(6, 100, 2, 0)]


# -- parts -------------------------------------------------------------------------------------


@given(
    first=st.integers(0, 5),
    batches=st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 4]), st.integers(1, 5)), min_size=1),
)
def test_stretches_and_gaps_are_all_there_is(first: int, batches: list[tuple[int, int]]) -> None:
    offset, read = 0, []
    for gap, records in batches:
        read.append((offset + gap, offset + gap + records - 1))
        offset += gap + records
    fetch_offset = min(first, read[0][1])
    stretches, gaps = stretches_and_gaps(read, fetch_offset)
    present = [o for a, b in read for o in range(a, b + 1)]
    assert [o for a, b in stretches for o in range(a, b + 1)] == present
    missing = sorted(set(range(fetch_offset, offset)) - set(present))
    assert [o for a, b in gaps for o in range(a, b + 1)] == missing
    assert all(x[1] + 1 < y[0] for x, y in itertools.pairwise(stretches))


RANGES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), max_size=6)


def ascending(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    offset, ranges = 0, []
    for gap, records in parts:
        ranges.append((offset + gap, offset + gap + records - 1))
        offset += gap + records
    return ranges


@given(acquired=RANGES, aborted=RANGES)
def test_what_was_archived_is_cut_out(
    acquired: list[tuple[int, int]], aborted: list[tuple[int, int]]
) -> None:
    given_ = [Acquired(a, b, n) for n, (a, b) in enumerate(ascending(acquired))]
    gone = {o for a, b in ascending(aborted) for o in range(a, b + 1)}
    wanted = [(o, n) for a, b, n in given_ for o in range(a, b + 1) if o not in gone]
    left = without(given_, ascending(aborted))
    assert [(o, n) for a, b, n in left for o in range(a, b + 1)] == wanted


def test_the_invariants_of_a_partition_find_damage() -> None:
    partition = made()
    acquire(partition, (0, 9))
    partition._window.lock(0, 1, 99)
    with pytest.raises(InvariantBroken):
        partition.invariants()
