"""Cutting a log: its end (a follower diverged, a write failed), its start, or all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.errors import ApiError, ErrorCode
from penstock.log.producer_replay import replay_producers
from penstock.log.segment import LogSegment

if TYPE_CHECKING:
    from penstock.log.log import Log


def truncate_to(log: Log, offset: int) -> int:
    """Drop the batch that holds `offset` and all after it; the new end of the log.

    The end is `offset`, or less if a batch that begins before it had to go as a whole.
    """
    if offset < log.segments[0].base_offset:
        return truncate_fully(log, offset)
    end = cut_segments(log, offset)
    log.log_start_offset = min(log.log_start_offset, end)
    log.recovery_point = min(log.recovery_point, end)
    log.epochs.truncate_from_end(end)
    reload_producers(log, end)
    return end


def cut_segments(log: Log, offset: int) -> int:
    """Drop the data at or above `offset`, nothing else; where the data ends now."""
    for segment in reversed(list(log.segments)):
        if segment.base_offset <= offset:
            break
        log.segments.remove(segment)
        log.producers.delete_snapshot(segment.base_offset)
        segment.delete()
    return log.segments.active.truncate_to(offset)


def reload_producers(log: Log, end: int) -> None:
    """Bring producer state back to what it was at `end`."""
    producers = log.producers
    # A snapshot does not say which markers wait to be committed.
    waiting = {first: last for first, last in producers.unreplicated.items() if last < end}
    producers.load(log.log_start_offset, end, log.env.clock.now_ms())
    replay_producers(producers, log.segments, end)
    producers.unreplicated |= waiting
    if log.high_watermark is not None:
        # What was replayed is committed, up to the high watermark.
        producers.on_high_watermark(log.high_watermark)


def truncate_fully(log: Log, offset: int) -> int:
    """Drop everything; the log is empty and begins at `offset`."""
    for segment in list(log.segments):
        log.segments.remove(segment)
        segment.delete()
    log.producers.reset(offset)
    log.epochs.clear()
    now_ms = log.env.clock.now_ms()
    fresh = LogSegment.create(log.dir, offset, log.env.files, log.env.indexes, now_ms=now_ms)
    log.segments.add(fresh)
    log.log_start_offset = log.recovery_point = offset
    return offset


def move_log_start(log: Log, offset: int) -> None:
    """Hide everything below `offset`; the segments go with the next retention pass."""
    if offset > log.log_end_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"cannot delete {log.name} up to {offset}, it ends at {log.log_end_offset}",
        )
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
