"""The swap of compacted segments for the ones they were made from, safe against a crash at any
step.

Kafka's protocol of suffixes. New files are written as `.cleaned`; when all are complete they
become `.swap`; then the old segments become `.deleted`; then the new ones lose their suffix. What
a start finds:

| left behind | meaning | what is done |
|---|---|---|
| `.cleaned` | the cleaner was not done | removed, and so is every `.swap` at or above its offset |
| `.swap` | the new segments are complete | the swap is carried to its end |
| `.deleted` | not part of the log any more | removed |
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.base.errors import StorageError, invariant
from penstock.log.environment import LogEnvironment
from penstock.log.files import fsync_dir, fsync_path, unlink_if_exists
from penstock.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    LogSegment,
    segment_path,
)

if TYPE_CHECKING:
    from penstock.log.log import Log


def replace_segments(
    log: Log, env: LogEnvironment, new_base_offsets: list[int], old_base_offsets: list[int]
) -> None:
    """Swap the `.cleaned` segments in for the old ones; reads of the old ones end well."""
    old = [s for s in log.segments if s.base_offset in set(old_base_offsets)]
    invariant(len(old) == len(old_base_offsets), f"{log.name}: a segment to replace is gone")
    invariant(log.segments.active not in old, f"{log.name}: the active segment is not compacted")
    now_ms = env.clock.now_ms()
    try:
        for base in sorted(new_base_offsets, reverse=True):
            for suffix in SEGMENT_SUFFIXES:
                fsync_path(segment_path(log.dir, base, suffix + CLEANED_SUFFIX))
            _change_suffix(log.dir, base, CLEANED_SUFFIX, SWAP_SUFFIX)
        fsync_dir(log.dir)
        _retire(log, old, set(new_base_offsets), now_ms)
        for base in sorted(new_base_offsets):
            _change_suffix(log.dir, base, SWAP_SUFFIX, "")
            log.segments.add(_open(log.dir, base, env))
        fsync_dir(log.dir)
    except OSError as e:
        raise StorageError(f"cannot swap compacted segments of {log.name} in: {e}") from e


def _retire(log: Log, old: list[LogSegment], kept: set[int], now_ms: int) -> None:
    # The snapshot of an old segment whose base offset no segment has any more goes with it;
    # producer state itself is not touched by compaction.
    due = now_ms + log.config.file_delete_delay_ms
    log.mark_changed()
    for segment in old:
        log.segments.remove(segment)
        segment.add_suffix(DELETED_SUFFIX)
        log.deleted_segments.append((due, segment))
        if segment.base_offset not in kept:
            log.producers.delete_snapshot(segment.base_offset)


def _change_suffix(log_dir: str, base: int, old: str, new: str) -> None:
    """Rename the files of a segment, the data last: its name decides what a restart does."""
    for suffix in reversed(SEGMENT_SUFFIXES):
        path = segment_path(log_dir, base, suffix)
        if os.path.exists(path + old):
            os.rename(path + old, path + new)


def _open(log_dir: str, base: int, env: LogEnvironment) -> LogSegment:
    stat = os.stat(segment_path(log_dir, base, LOG_SUFFIX))
    return LogSegment(
        log_dir,
        base,
        env.files,
        env.indexes,
        size=stat.st_size,
        created_ms=int(stat.st_mtime * 1000),
    )


def finish_interrupted_swaps(log_dir: str, names: list[str], env: LogEnvironment) -> bool:
    """Carry out or undo what a crash left behind; whether anything was found."""
    left = [n for n in names if n.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))]
    if not left:
        return False
    cleaned = [_offset_of(n) for n in left if n.endswith(CLEANED_SUFFIX)]
    valid_below = min(cleaned, default=None)
    swaps = set()
    for name in left:
        base = _offset_of(name)
        stale = valid_below is not None and base >= valid_below
        if name.endswith(SWAP_SUFFIX) and not stale:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                swaps.add(base)
        else:
            unlink_if_exists(f"{log_dir}/{name}")
    _complete(log_dir, sorted(swaps), names, env)
    fsync_dir(log_dir)
    return True


def _complete(log_dir: str, swaps: list[int], names: list[str], env: LogEnvironment) -> None:
    kept = {_offset_of(n) for n in names if n.endswith(LOG_SUFFIX)}
    for base in swaps:
        _change_suffix(log_dir, base, SWAP_SUFFIX, "")
        end = _open(log_dir, base, env).next_offset()
        for covered in kept:
            if base < covered < end:
                for suffix in SEGMENT_SUFFIXES:
                    unlink_if_exists(segment_path(log_dir, covered, suffix))


def _offset_of(name: str) -> int:
    return int(name.split(".", 1)[0])
