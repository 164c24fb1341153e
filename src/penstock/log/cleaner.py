"""What is compacted next and how: the decisions of the log cleaner, without any I/O.

Duty: from the state of a log, which offsets are dirty and may be cleaned (`cleanable`); of many
logs, the one that needs it most (`filthiest`); how its segments are put together to new ones
(`group_segments`); the order for the child process that does the work (`clean_job`).

Terms, as in Kafka: what lies below the first dirty offset was cleaned before; the dirty section
reaches from there to the first uncleanable offset. The driver keeps the first dirty offset of
every log in `cleaner-offset-checkpoint`.

Invariants: nothing at or above the active segment, the last stable offset (which is at most the
high watermark) or the first segment younger than `min.compaction.lag.ms` is ever cleaned. A new
segment spans at most 2^31 - 1 offsets.

Pure: times and states come in as arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.ids import TopicPartition
from penstock.log.cleaner_job import CleanJob, ProducerEnd, SegmentFacts, SegmentKeys
from penstock.log.limits import CLEANED_GROUP_SEGMENTS_MAX, RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    # The cleaner's child process needs the grouping below, but none of the settings.
    from penstock.config.log_config import LogConfig


class LogState(NamedTuple):
    """What the decisions need to know of one compacted log."""

    topic_partition: TopicPartition
    config: LogConfig
    segments: Sequence[SegmentFacts]
    """In offset order; the last one is the active segment."""
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpoint: int | None
    """First dirty offset as noted after the last cleaning."""


class LogToClean(NamedTuple):
    """The cleanable part of one log."""

    log: LogState
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Always the base offset of a segment."""
    clean_bytes: int
    dirty_bytes: int
    compaction_delay_ms: int
    """By how much the oldest dirty segment has outlived `max.compaction.lag.ms`."""
    checkpoint_is_invalid: bool
    """The noted offset lies outside the log; the driver notes `first_dirty_offset` instead."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether `min.cleanable.dirty.ratio` or `max.compaction.lag.ms` ask for a cleaning now."""
        if not self.dirty_bytes:
            return False
        return (
            self.compaction_delay_ms > 0
            or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
        )


def cleanable(log: LogState, now_ms: int) -> LogToClean:
    """The offsets of `log` that may be cleaned at `now_ms`, and how pressing that is."""
    noted = log.log_start_offset if log.checkpoint is None else log.checkpoint
    valid = log.log_start_offset <= noted <= log.log_end_offset
    first_dirty = noted if valid else log.log_start_offset
    end = _first_uncleanable(log, first_dirty, now_ms)
    dirty = [s for s, next_base in _with_next(log.segments) if next_base > first_dirty]
    return LogToClean(
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=end,
        clean_bytes=sum(
            s.size_bytes for s, next_base in _with_next(log.segments) if next_base <= first_dirty
        ),
        dirty_bytes=sum(s.size_bytes for s in dirty if s.base_offset < end),
        compaction_delay_ms=_compaction_delay_ms(dirty, log.config.max_compaction_lag_ms, now_ms),
        checkpoint_is_invalid=not valid,
    )


def _with_next(segments: Sequence[SegmentFacts]) -> Iterable[tuple[SegmentFacts, int]]:
    """Every rolled segment with the base offset of the one after it."""
    return zip(segments, (s.base_offset for s in segments[1:]), strict=False)


def _first_uncleanable(log: LogState, first_dirty: int, now_ms: int) -> int:
    """The base offset of the first segment that must stay as it is."""
    young_ms = now_ms - log.config.min_compaction_lag_ms
    for segment, next_base in _with_next(log.segments):
        if next_base > log.last_stable_offset:
            return segment.base_offset
        is_dirty = next_base > first_dirty
        if is_dirty and log.config.min_compaction_lag_ms > 0 and segment.max_timestamp > young_ms:
            return segment.base_offset
    return log.segments[-1].base_offset


def _compaction_delay_ms(dirty: Sequence[SegmentFacts], lag_ms: int, now_ms: int) -> int:
    stamps = [s.first_timestamp for s in dirty if s.first_timestamp > 0]
    return max(0, now_ms - lag_ms - min(stamps)) if stamps else 0


def filthiest(logs: Iterable[LogToClean]) -> LogToClean | None:
    """Of the logs that are due, the one with the largest dirty share."""
    due = [log for log in logs if log.is_due]
    return max(due, key=lambda log: log.dirty_ratio, default=None)


def group_segments(
    segments: Sequence[SegmentFacts],
    *,
    segment_bytes: int,
    segment_index_bytes: int,
    end_offset: int,
) -> list[list[SegmentFacts]]:
    """Neighbours that fit together into one new segment, judged by their sizes before cleaning.

    `end_offset` is the offset after the last segment's last.
    """
    groups: list[list[SegmentFacts]] = []
    size = index = time_index = 0
    ends = [*(s.base_offset for s in segments), end_offset][1:]
    for segment, end in zip(segments, ends, strict=True):
        size += segment.size_bytes
        index += segment.offset_index_bytes
        time_index += segment.time_index_bytes
        fits = (
            bool(groups)
            and len(groups[-1]) < CLEANED_GROUP_SEGMENTS_MAX
            and size <= segment_bytes
            and index <= segment_index_bytes
            and time_index <= segment_index_bytes
            # An empty segment brings no offset of its own, so it never spans too far.
            and (
                segment.size_bytes == 0
                or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index = segment.size_bytes, segment.offset_index_bytes
            time_index = segment.time_index_bytes
    return groups


def clean_job(
    todo: LogToClean,
    *,
    directory: str,
    producers: Iterable[ProducerEnd],
    now_ms: int,
    dedupe_buffer_bytes: int,
    io_max_bytes_per_second: float,
    keys: SegmentKeys | None = None,
) -> CleanJob:
    """The order to clean `todo`, whose files lie in `directory`."""
    config = todo.log.config
    end = todo.first_uncleanable_offset
    return CleanJob(
        directory=directory,
        segments=tuple(s for s in todo.log.segments if s.base_offset < end),
        later_segments=tuple(s.base_offset for s in todo.log.segments if s.base_offset >= end),
        first_dirty_offset=todo.first_dirty_offset,
        first_uncleanable_offset=end,
        producers=tuple(producers),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        io_max_bytes_per_second=io_max_bytes_per_second,
        keys=keys,
    )
