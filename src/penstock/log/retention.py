"""Which segments go, and how.

A segment that goes is taken out of the log at once, its files are renamed to `.deleted` and removed
when `file.delete.delay.ms` is over, so that reads in progress succeed. The log start moves first:
if the process dies in between, the segments are found again and deleted by the next pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.errors import StorageError
from penstock.log.segment import LogSegment
from penstock.log.segment_files import DELETED_SUFFIX

if TYPE_CHECKING:
    from penstock.log.log import Log

NEVER_MS = 2**63 - 1


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Apply retention by log start, time and size; the number of segments that go."""
    if log.cleaning:
        return 0
    count = _below_log_start(log)
    if log.config.deletes:
        count = max(count, _too_old(log, now_ms), _too_big(log))
    count = min(count, _committed(log))
    if not count:
        return 0
    try:
        if count == len(log.segments):
            log.roll()
        going = [log.segments[i] for i in range(count)]
        log.delete_records(max(log.segments[count].base_offset, log.log_start_offset))
        remove_segments(log, going, now_ms)
    except OSError as e:
        raise StorageError(f"cannot delete segments of {log.name}: {e}") from e
    return count


def start_below(log: Log, offset: int) -> tuple[int, int]:
    """Where the log would begin without the segments that lie wholly below `offset`, and how many
    bytes those have. The last segment stays.
    """
    count = log.segments.floor_index(offset)
    return log.segments[count].base_offset, sum(log.segments[i].size for i in range(count))


def remove_segments(log: Log, segments: list[LogSegment], now_ms: int) -> None:
    """Take `segments` out of the log; their files follow after the delay."""
    due = now_ms + log.config.file_delete_delay_ms
    for segment in segments:
        log.segments.remove(segment)
        segment.add_suffix(DELETED_SUFFIX)
        log.producers.delete_snapshot(segment.base_offset)
        log.deleted_segments.append((due, segment))
    log.mark_changed()


def due_deletions(log: Log, now_ms: int) -> list[str]:
    """The files whose delay is over, closed and ready to be removed; they are forgotten here."""
    waiting: list[tuple[int, LogSegment]] = []
    paths: list[str] = []
    for due, segment in log.deleted_segments:
        if due <= now_ms:
            segment.close()
            paths += segment.paths()
        else:
            waiting.append((due, segment))
    log.deleted_segments = waiting
    return paths


def nothing_due_before_ms(log: Log) -> int:
    """Until when a pass will find nothing, after one that found nothing, if nothing is written."""
    oldest = log.segments[0]
    if not log.config.deletes or log.config.retention_ms < 0 or not oldest.size:
        return NEVER_MS
    newest = oldest.max_timestamp if oldest.max_timestamp >= 0 else oldest.created_ms
    return newest + log.config.retention_ms


def _below_log_start(log: Log) -> int:
    return log.segments.floor_index(log.log_start_offset)


def _committed(log: Log) -> int:
    """How many segments lie wholly below the high watermark."""
    bound = log.log_end_offset if log.high_watermark is None else log.high_watermark
    count = len(log.segments)
    return sum(log.segments.end_of(i, log.log_end_offset) <= bound for i in range(count))


def _too_old(log: Log, now_ms: int) -> int:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0
    for i, segment in enumerate(log.segments):
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if now_ms - newest <= retention_ms or not segment.size:
            return i
    return len(log.segments)


def _too_big(log: Log) -> int:
    limit = log.config.retention_bytes
    if limit < 0:
        return 0
    excess = log.size_bytes - limit
    for i, segment in enumerate(log.segments):
        # A segment goes only if what stays still holds `retention.bytes`.
        if excess < segment.size or not segment.size:
            return i
        excess -= segment.size
    return len(log.segments)
