"""Which log is cleaned, how far, and into which segments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import TopicPartition
from penstock.config.log_config import LogConfig
from penstock.log.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_checkpoint, write_checkpoint
from penstock.log.cleaner import LogState, LogToClean, cleanable, filthiest, group_segments
from penstock.log.cleaner_job import SegmentFacts, frame, job_message, parse_job
from penstock.log.cleaner_worker import Throttle
from penstock.log.limits import CLEANED_GROUP_SEGMENTS_MAX

NOW_MS = 1_000_000


def state(
    *sizes: int,
    checkpoint: int | None = None,
    start: int = 0,
    stable: int | None = None,
    stamps: dict[int, int] | None = None,
    **config: Any,
) -> LogState:
    """A log of segments of 100 offsets each; the last one is the active segment."""
    stamps = stamps or {}
    return LogState(
        topic_partition=TopicPartition("t", 0),
        config=replace(LogConfig(), **config),
        segments=[
            SegmentFacts(100 * i, size, stamps.get(i, 10), stamps.get(i, 10))
            for i, size in enumerate(sizes)
        ],
        log_start_offset=start,
        log_end_offset=100 * len(sizes),
        last_stable_offset=100 * len(sizes) if stable is None else stable,
        checkpoint=checkpoint,
    )


def bounds(log: LogState) -> tuple[int, int]:
    todo = cleanable(log, NOW_MS)
    return todo.first_dirty_offset, todo.first_uncleanable_offset


def test_the_dirty_section_ends_at_the_active_segment() -> None:
    assert bounds(state(5, 5, 5)) == (0, 200)
    assert bounds(state(5, 5, 5, checkpoint=100)) == (100, 200)
    assert bounds(state(5)) == (0, 0)


@pytest.mark.parametrize(
    ("stable", "end"), [(300, 200), (200, 200), (199, 100), (150, 100), (100, 100), (50, 0), (0, 0)]
)
def test_it_ends_at_the_segment_of_the_last_stable_offset(stable: int, end: int) -> None:
    assert bounds(state(5, 5, 5, stable=stable))[1] == end


def test_it_ends_at_the_first_dirty_segment_that_is_too_young() -> None:
    stamps = {0: NOW_MS - 10, 1: NOW_MS - 5_000, 2: NOW_MS - 900, 3: NOW_MS - 5_000}
    young = state(5, 5, 5, 5, 5, stamps=stamps, min_compaction_lag_ms=1_000, checkpoint=100)
    assert bounds(young) == (100, 200)
    assert bounds(young._replace(checkpoint=None)) == (0, 0)
    assert bounds(young._replace(config=LogConfig())) == (100, 400)


@pytest.mark.parametrize("noted", [99, 301])
def test_a_checkpoint_outside_the_log_is_not_believed(noted: int) -> None:
    todo = cleanable(state(5, 5, 5, checkpoint=noted, start=100), NOW_MS)
    assert todo.checkpoint_is_invalid
    assert todo.first_dirty_offset == 100
    assert not cleanable(state(5, 5, 5, checkpoint=100, start=100), NOW_MS).checkpoint_is_invalid


def test_the_dirty_ratio_counts_rolled_segments_only() -> None:
    todo = cleanable(state(300, 100, 50, 1_000, checkpoint=100), NOW_MS)
    assert (todo.clean_bytes, todo.dirty_bytes) == (300, 150)
    assert todo.dirty_ratio == pytest.approx(1 / 3)
    assert not todo.is_due
    assert cleanable(todo.log._replace(checkpoint=0), NOW_MS).is_due
    eager = replace(LogConfig(), min_cleanable_dirty_ratio=0.3)
    assert cleanable(todo.log._replace(config=eager), NOW_MS).is_due
    empty = cleanable(state(0, 0, 5), NOW_MS)
    assert empty.dirty_ratio == 0
    assert not empty.is_due


def test_an_old_dirty_segment_makes_a_log_due() -> None:
    log = state(900, 10, 10, checkpoint=100, stamps={1: 400}, max_compaction_lag_ms=NOW_MS - 500)
    todo = cleanable(log, NOW_MS)
    assert todo.dirty_ratio < 0.5
    assert todo.compaction_delay_ms == 100
    assert todo.is_due
    assert not cleanable(log, NOW_MS - 100).is_due
    assert not cleanable(log._replace(last_stable_offset=150), NOW_MS).is_due


def test_the_filthiest_log_that_is_due_is_taken() -> None:
    def todo(*sizes: int, **more: Any) -> LogToClean:
        return cleanable(state(*sizes, 1, checkpoint=100, **more), NOW_MS)

    clean, dirty, filthy = todo(900, 100), todo(400, 600), todo(300, 700)
    lazy = todo(1, 999, min_cleanable_dirty_ratio=1.0)
    assert filthiest([clean, dirty, filthy, lazy]) is filthy
    assert filthiest([clean, lazy]) is None
    assert filthiest([]) is None


def grouped(segments: list[SegmentFacts], end: int = 10**10, **limits: int) -> list[list[int]]:
    limits = {"segment_bytes": 100, "segment_index_bytes": 1_000} | limits
    groups = group_segments(segments, end_offset=end, **limits)
    return [[s.base_offset for s in group] for group in groups]


def test_groups_stay_below_the_sizes_of_segment_and_indexes() -> None:
    sized = [SegmentFacts(i, size) for i, size in enumerate((40, 60, 1, 99, 1, 200, 5))]
    assert grouped(sized) == [[0, 1], [2, 3], [4], [5], [6]]
    indexed = [SegmentFacts(i, 1, offset_index_bytes=600 - 100 * i) for i in range(4)]
    assert grouped(indexed) == [[0], [1, 2], [3]]
    timed = [SegmentFacts(i, 1, time_index_bytes=500) for i in range(3)]
    assert grouped(timed) == [[0, 1], [2]]
    assert grouped([]) == []


def test_a_group_has_no_more_segments_than_the_loop_renames_in_one_go() -> None:
    empty = [SegmentFacts(i, 0) for i in range(CLEANED_GROUP_SEGMENTS_MAX + 2)]
    assert [len(group) for group in grouped(empty)] == [CLEANED_GROUP_SEGMENTS_MAX, 2]


def test_a_group_spans_no_more_offsets_than_an_index_can_hold() -> None:
    limit = 2**31 - 1
    near = [SegmentFacts(0, 1), SegmentFacts(10, 1)]
    assert grouped(near, end=limit + 1) == [[0, 10]]
    assert grouped(near, end=limit + 2) == [[0], [10]]
    far = [SegmentFacts(0, 1), SegmentFacts(10, 1), SegmentFacts(limit + 1, 1)]
    assert grouped(far, end=limit + 2) == [[0, 10], [limit + 1]]
    hollow = [SegmentFacts(0, 0), SegmentFacts(5, 0), SegmentFacts(3 * limit, 0)]
    assert grouped(hollow, end=4 * limit) == [[0, 5, 3 * limit]]


def test_the_first_dirty_offsets_are_noted_in_kafkas_format(tmp_path: Path, log: Any) -> None:
    log.put(("a", "1"), ("b", "1"))
    log.clean()
    path = str(tmp_path / CLEANER_OFFSET_CHECKPOINT)
    write_checkpoint(path, {log.log.topic_partition: log.checkpoint})
    assert Path(path).read_text() == "0\n1\nt 0 2\n"
    assert read_checkpoint(path) == {TopicPartition("t", 0): 2}
    log.reload()
    log.checkpoint = read_checkpoint(path)[TopicPartition("t", 0)]
    assert bounds_of_job(log) == (2, 2)
    log.put(("a", "2"))
    log.log.roll()
    assert bounds_of_job(log) == (2, 3)


def bounds_of_job(log: Any) -> tuple[int, int]:
    job = log.job()
    return job.first_dirty_offset, job.first_uncleanable_offset


def test_a_job_survives_the_pipe(log: Any) -> None:
    log.put(("a", "1"), producer_id=3, producer_epoch=1, base_sequence=0)
    log.log.roll()
    job = log.job()
    assert job.producers
    data = job_message(job, 7)
    assert len(data) == int.from_bytes(data[:4], "big") + 4
    message = json.loads(data[4:])
    assert parse_job(message) == job
    assert frame(message) == data


def test_the_throttle_lets_bursts_through_and_holds_the_rate() -> None:
    throttle = Throttle(1_000, now=0.0)
    assert throttle.count(200, 0.0) == 0
    assert throttle.count(800, 0.0) == pytest.approx(1.0)
    assert throttle.count(500, 1.0) == pytest.approx(0.5)
    assert throttle.count(0, 5.0) == 0
    assert throttle.count(1_000, 5.0) == pytest.approx(1.0)
