"""The swap of a compacted segment for the ones it was made from, safe against a crash at any step
and a loss of power at any step.

Kafka's suffixes. The child process writes a new segment as `.cleaned`. Then, in turns of a worker
thread and the event loop:

| step | where | what |
|---|---|---|
| `prepare` | thread | sync the `.cleaned` files, rename them to `.swap`, sync the directory |
| `install` | loop | in memory the new segment replaces the old ones, which become `.deleted` |
| `sync` | thread | sync the directory |
| `settle` | loop | the new files lose their suffix |
| `sync` | thread | sync the directory |
| `end` | loop | check the result |

Before `prepare` a start undoes the swap, after it a start carries it out. The old names are durably
gone before the new one is final: a final segment beside those that it replaces would be a log that
holds its records twice. What a start finds:

| left behind | meaning | what is done |
|---|---|---|
| `.cleaned` | the cleaner was not done | removed, and so is every `.swap` at or above its offset |
| `.swap` | the new segment is complete | the swap is carried to its end |
| `.deleted` | not part of the log any more | removed |

While a step runs in the thread,
- the log may be truncated: until `install` that cancels the swap (`cancel`), afterwards the new
  segment is truncated under whatever name it has;
- the partition may be deleted: its directory has another name then, and nothing more is done;
- retention ignores the log (`Log.cleaning`), and appends and rolls do not touch closed segments.

When a `.cleaned` file cannot be synced, the log stays as it was. When the directory cannot be
synced after `install`, it is unknown which names the disk has: the log fails for good, as after any
other failed fsync.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

from penstock.base.errors import StorageError, invariant
from penstock.log.environment import LogEnvironment
from penstock.log.files import fsync_dir, fsync_path, unlink_if_exists
from penstock.log.segment import LogSegment
from penstock.log.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    remove_segment_files,
    segment_path,
)
from penstock.log.segment_keys import attach_key, find_magic

if TYPE_CHECKING:
    from penstock.log.log import Log


class SegmentSwap:
    """One `.cleaned` segment on its way to the place of the ones it was made from."""

    def __init__(self, log: Log, base_offset: int, replaced: Iterable[int]) -> None:
        bases = set(replaced)
        self._log = log
        self._env = log.env
        self._dir = log.dir
        self._base = base_offset
        self._old = [s for s in log.segments if s.base_offset in bases]
        self._new: LogSegment | None = None
        self._error: OSError | None = None
        self._cancelled = False
        self._lock = Lock()
        """Held for the renames of `prepare`, so that `cancel` finds all of them done or none."""
        active = log.segments.active
        invariant(len(self._old) == len(bases), f"{log.name}: a segment to replace is gone")
        invariant(active not in self._old, f"{log.name}: the active segment is not compacted")
        invariant(log.swap is None, f"{log.name}: one swap at a time")

    def prepare(self) -> None:
        """In any thread: from here on a start carries the swap out."""
        try:
            for suffix in SEGMENT_SUFFIXES:
                fsync_path(segment_path(self._dir, self._base, suffix + CLEANED_SUFFIX))
            with self._lock:
                if self._cancelled:
                    return
                _change_suffix(self._dir, self._base, CLEANED_SUFFIX, SWAP_SUFFIX)
            fsync_dir(self._dir)
        except OSError as e:
            self._error = e

    def cancel(self) -> None:
        """Before `install`: no start may carry the swap out any more."""
        with self._lock:
            self._cancelled = True
            # The data first: a start that finds it `.cleaned` throws all of it away.
            for suffix in SEGMENT_SUFFIXES:
                _rename(self._dir, self._base, suffix, SWAP_SUFFIX, CLEANED_SUFFIX)

    def install(self) -> bool:
        """On the loop, after `prepare`; False when the log was cut or deleted meanwhile.

        Reads of the old segments end well. `StorageError` when `prepare` failed: the log is as it
        was. In both cases the `.cleaned` files are the caller's to remove.
        """
        log = self._log
        if log.abandoned and not self._is_deleted:
            self.cancel()  # its files stay as they are, for a start to judge
        if self._cancelled or self._is_deleted:
            log.swap = None
            return False
        try:
            if self._error is not None:
                raise self._error
            new = _open(self._dir, self._base, self._env, SWAP_SUFFIX)
            if new.size:
                attach_key(new, self._env.keys, log.topic_partition, log.topic_id)
        except (OSError, StorageError) as e:
            self.cancel()
            log.swap = None
            raise self._failed(e) from e
        log.swap = None
        for segment in self._old:
            log.segments.remove(segment)
        log.segments.add(new)
        self._new = new
        try:
            self._retire()
        except OSError as e:
            raise self._failed(e) from e  # the next start carries it out
        return True

    def _retire(self) -> None:
        # The snapshot of an old segment whose base offset no segment has any more goes with it;
        # producer state itself is not touched by compaction.
        log = self._log
        due = self._env.clock.now_ms() + log.config.file_delete_delay_ms
        log.mark_changed()
        for segment in self._old:
            segment.add_suffix(DELETED_SUFFIX)
            log.deleted_segments.append((due, segment))
            if segment.base_offset != self._base:
                log.producers.delete_snapshot(segment.base_offset)

    def sync(self) -> None:
        """In any thread: make the names durable that the files have now."""
        try:
            fsync_dir(self._dir)
        except OSError as e:
            self._error = e

    def settle(self) -> None:
        """On the loop, after the first `sync`: the new segment gets its name."""
        new = self._new
        if self._is_synced() and new is not None and new in self._log.segments:
            try:
                new.drop_suffix(SWAP_SUFFIX)
            except OSError as e:
                raise self._failed(e) from e  # it is served as it is, and a start renames it

    def end(self) -> None:
        """On the loop, after the second `sync`."""
        self._is_synced()

    @property
    def _is_deleted(self) -> bool:
        return self._log.dir != self._dir

    def _is_synced(self) -> bool:
        """Whether the directory is as it should be on the disk; False when it is deleted."""
        if self._is_deleted:
            return False
        if self._error is not None:
            self._log.health.fail_for_good(f"fsync failed: {self._error}")
            self._env.on_fsync_failed()
            raise self._failed(self._error) from self._error
        return True

    def _failed(self, why: Exception) -> StorageError:
        return StorageError(f"cannot swap compacted segments of {self._log.name} in: {why}")


def _change_suffix(log_dir: str, base: int, old: str, new: str) -> None:
    """Rename the files of a segment, the offset index first and the data last: their names decide
    what a restart does.
    """
    for suffix in (*SEGMENT_SUFFIXES[1:], LOG_SUFFIX):
        _rename(log_dir, base, suffix, old, new)


def _rename(log_dir: str, base: int, suffix: str, old: str, new: str) -> None:
    path = segment_path(log_dir, base, suffix)
    if os.path.exists(path + old):
        os.rename(path + old, path + new)


def _open(log_dir: str, base: int, env: LogEnvironment, suffix: str) -> LogSegment:
    stat = os.stat(segment_path(log_dir, base, LOG_SUFFIX + suffix))
    return LogSegment(
        log_dir,
        base,
        env.files,
        env.indexes,
        size=stat.st_size,
        created_ms=int(stat.st_mtime * 1000),
        suffix=suffix,
    )


def finish_swaps(log_dir: str, env: LogEnvironment) -> None:
    """Do at the start what would wait for the disk when the log is opened: what a swap left behind
    is carried out or undone.
    """
    names = os.listdir(log_dir)
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        finish_interrupted_swaps(log_dir, names, env)


def finish_interrupted_swaps(log_dir: str, names: list[str], env: LogEnvironment) -> bool:
    """Carry out or undo what a crash left behind; whether anything was found.

    Where there is no `.swap`, nothing is synced: what comes back is found and removed again.
    """
    left = [n for n in names if n.endswith((CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX))]
    if not left:
        return False
    cleaned = [_offset_of(n) for n in left if n.endswith(CLEANED_SUFFIX)]
    valid_below = min(cleaned, default=None)
    swaps, stale = set(), []
    for name in left:
        if name.endswith(SWAP_SUFFIX):
            if valid_below is None or _offset_of(name) < valid_below:
                swaps.add(_offset_of(name))
            else:
                stale.append(name)
    if stale:
        _remove(log_dir, stale)
        fsync_dir(log_dir)  # without the `.cleaned` beside it, a start would carry it out
    _remove(log_dir, [n for n in left if not n.endswith(SWAP_SUFFIX)])
    if swaps:
        _complete(log_dir, sorted(swaps), names, env)
    return True


def _remove(log_dir: str, names: list[str]) -> None:
    for name in names:
        unlink_if_exists(f"{log_dir}/{name}")


def _complete(log_dir: str, swaps: list[int], names: list[str], env: LogEnvironment) -> None:
    kept = {_offset_of(n) for n in names if n.endswith(LOG_SUFFIX)}
    for base in swaps:
        if f"{base:020d}{INDEX_SUFFIX}{SWAP_SUFFIX}" in names:
            # Not yet the new one's, which may have none.
            unlink_if_exists(segment_path(log_dir, base, TXN_INDEX_SUFFIX))
            unlink_if_exists(segment_path(log_dir, base, KEY_SUFFIX))
        if f"{base:020d}{LOG_SUFFIX}{SWAP_SUFFIX}" in names:
            new = _open(log_dir, base, env, SWAP_SUFFIX)
            find_magic(new)
            end = new.next_offset()
            new.close()
            for covered in kept:
                if base < covered < end:
                    remove_segment_files(log_dir, covered)
    fsync_dir(log_dir)
    for base in swaps:
        _change_suffix(log_dir, base, SWAP_SUFFIX, "")
    fsync_dir(log_dir)


def _offset_of(name: str) -> int:
    return int(name.split(".", 1)[0])
