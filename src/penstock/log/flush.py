"""A flush of one log, split so that the fsync can run in another thread.

`flush_begin` (loop) collects what has to become durable, `FlushTask.run` (any thread) syncs it,
`flush_done` (loop) moves the recovery point. The segment files of a task are pinned in between.
The leader epochs are written as a whole, so that a failed write can be repeated; a failed sync of
data cannot.

Closed segments have their indexes synced too, since a start trusts what lies below the recovery
point. Those of the active segment are written and synced now and then, so that recovery need not
read the segment from its beginning; its list of aborted transactions is synced always, since the
rest of the segment does not show that an entry is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.base.errors import StorageError
from penstock.log.checkpoints import PARTITION_METADATA
from penstock.log.files import LogFile, fsync_dir, fsync_path
from penstock.log.limits import INDEX_FLUSH_BATCHES, UNFLUSHED_BATCHES_MAX

if TYPE_CHECKING:
    from penstock.log.log import Log


class FlushTask:
    """Files to sync, and the offset below which the log is durable afterwards."""

    __slots__ = ("_data", "_dirs", "_paths", "_write_epochs", "error", "refused", "up_to_offset")

    def __init__(
        self,
        data: list[LogFile],
        paths: list[str],
        dirs: list[str],
        up_to_offset: int,
        write_epochs: Callable[[], None] | None = None,
    ) -> None:
        self._data: list[LogFile] = []
        self._paths = paths
        self._dirs = dirs
        self._write_epochs = write_epochs
        self.up_to_offset = up_to_offset
        self.error: OSError | None = None
        """A sync has failed."""
        self.refused: OSError | None = None
        """The leader epochs could not be written."""
        try:
            for file in data:
                file.pin()
                self._data.append(file)
        except OSError:
            self._unpin()
            raise

    def run(self) -> None:
        """Sync everything; a failure is kept for `flush_done`."""
        try:
            self._sync()
        except FileNotFoundError:
            # The partition was deleted (its directory renamed) meanwhile: nothing is left to keep.
            return
        except OSError as e:
            self.error = e
        finally:
            self._unpin()

    def _sync(self) -> None:
        if self._write_epochs is not None:
            try:
                self._write_epochs()
            except FileNotFoundError:
                raise
            except OSError as e:
                self.refused = e
                return
        for file in self._data:
            os.fdatasync(file.fd)
        for path in self._paths:
            fsync_path(path)
        for path in self._dirs:
            fsync_dir(path)

    def _unpin(self) -> None:
        for file in self._data:
            file.unpin()


def flush_is_due(log: Log, now_ms: int) -> bool:
    """Whether a setting, a closed segment or the length of a recovery asks for a flush."""
    unflushed = log.unflushed_messages
    if not unflushed:
        return False
    return (
        unflushed >= log.config.flush_messages
        or now_ms - log.last_flush_ms >= log.config.flush_ms
        or log.rolled_unflushed
        or log.batches_unindexed >= UNFLUSHED_BATCHES_MAX
    )


def flush_begin(log: Log) -> FlushTask:
    """Collect what has to be synced to make everything below the log end durable."""
    log.write_out()
    if log.health.for_good:
        raise StorageError(f"{log.name} cannot be flushed: {log.failure}")
    try:
        return _task(log)
    except OSError as e:
        raise log.refused(e) from e


def flush_done(log: Log, task: FlushTask) -> None:
    """Move the recovery point to what `task` has synced."""
    log.last_flush_ms = log.env.clock.now_ms()
    if task.error is not None:
        # The kernel may have dropped the pages it could not write, and a later fsync would not
        # report it: only recovery at the next start can find out what is there.
        log.health.fail_for_good(f"fsync failed: {task.error}")
        log.env.on_fsync_failed()
        raise StorageError(f"{log.name} cannot be flushed: {task.error}")
    if task.refused is not None:
        log.epochs.dirty = log.unsynced_names = True
        raise log.refused(task.refused) from task.refused
    point = min(task.up_to_offset, log.log_end_offset)
    log.recovery_point = max(log.recovery_point, point)
    log.mark_changed()


def flush(log: Log) -> None:
    """Make everything below the log end durable, here and now."""
    task = flush_begin(log)
    task.run()
    flush_done(log, task)


def _task(log: Log) -> FlushTask:
    active = log.segments.active
    index_too = log.batches_unindexed >= INDEX_FLUSH_BATCHES
    if index_too:
        active.flush_indexes()
        log.producers.take_snapshot(log.log_end_offset)
        log.producers.remove_stray_snapshots(set(log.segments.base_offsets))
        log.batches_unindexed = 0
    # From the segment of the last flushed offset on: if it was closed since, its indexes are due.
    segments = log.segments.from_offset(log.recovery_point - 1)
    paths = [path for s in segments if index_too or s is not active for path in s.paths()[1:]]
    if active.txn_index.dirty:
        paths.append(active.txn_index.path)
        active.txn_index.dirty = False
    if index_too or log.recovery_point <= active.base_offset:
        # Files are new since the last flush, and so are their entries in the directory.
        paths += log.producers.snapshot_paths(log.recovery_point)
        if active.key_id:
            paths.append(active.key_path)
    new_names = paths or log.unsynced_names or log.recovery_point <= active.base_offset
    dirs = [log.dir] if new_names else []
    if log.recovery_point <= log.segments[0].base_offset:
        # Perhaps the first flush: the directory itself is new.
        paths.append(os.path.join(log.dir, PARTITION_METADATA))
        dirs.append(os.path.dirname(log.dir))
    files = [s.file for s in segments]
    task = FlushTask(files, paths, dirs, log.log_end_offset, log.epochs.flush_begin())
    log.unsynced_names = False
    return task
