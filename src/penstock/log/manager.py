"""All logs of one data directory.

Duty: the directory's lock and ids (`meta.properties`), the clean-shutdown marker, the checkpoints,
finding, creating and deleting partition directories, and the housekeeping passes that a driver
calls. No thread and no timer.

A start reads directory names and checkpoints only; a log is opened on its first use, and recovered
then if the last stop was unclean (`recovery_pass` does it ahead of use). After such a stop the
start also looks for swaps of compacted segments that were interrupted, and finishes them, which
waits for the disk. The marker is written on close only when every log is known to be clean, so a
second crash before all were opened loses nothing.

An error of one log affects only that log. Owned by the loop's thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator

from penstock.base.errors import InvariantBroken, PenstockError, StorageError
from penstock.base.ids import TopicPartition, Uuid, uuid_text
from penstock.config.log_config import LogConfig
from penstock.log.checkpoints import (
    read_meta_properties,
    read_partition_metadata,
    write_meta_properties,
    write_partition_metadata,
)
from penstock.log.closing import close_logs
from penstock.log.environment import LogEnvironment
from penstock.log.files import fsync_dir, unlink_if_exists
from penstock.log.flush import flush_is_due
from penstock.log.limits import RETENTION_LOGS_PER_STEP
from penstock.log.log import Log
from penstock.log.log_loader import load_log
from penstock.log.offset_checkpoints import OffsetCheckpoints
from penstock.log.replacement import finish_swaps
from penstock.log.retention import (
    NEVER_MS,
    delete_old_segments,
    due_deletions,
    nothing_due_before_ms,
)
from penstock.log.time_lookup import TimeLookups

logger = logging.getLogger("penstock.log")

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'


class LogManager:
    """The logs of a data directory, opened on first use."""

    def __init__(
        self,
        data_dir: str,
        config_for: Callable[[str], LogConfig],
        env: LogEnvironment | None = None,
    ) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self.env = env or LogEnvironment()
        self.clean_start = False
        self._config_for = config_for
        self._logs: dict[TopicPartition, Log] = {}
        self._known: dict[TopicPartition, None] = {}
        self._unrecovered: set[TopicPartition] = set()
        self._to_recover: list[TopicPartition] = []
        """Those that a recovery pass has not checked yet, the next one last."""
        self._quiet: dict[TopicPartition, tuple[LogConfig, int]] = {}
        """Logs in which retention had nothing to do, not opened since: under which settings, and
        until when it will have nothing.
        """
        self._to_delete: list[tuple[int, str, Log | None]] = []
        self.lookups = TimeLookups()
        self.on_broken: Callable[[TopicPartition, str], None] = self.abandon
        """Called when a log has broken an invariant."""
        self._lock_fd = lock_data_dir(self.data_dir)
        try:
            self._start()
        except BaseException:
            os.close(self._lock_fd)
            raise

    def _start(self) -> None:
        self.checkpoints = self.env.checkpoints = OffsetCheckpoints(self.data_dir)
        now_ms = self.env.clock.now_ms()
        for entry in os.scandir(self.data_dir):
            if not entry.is_dir(follow_symlinks=False):
                continue
            if entry.name.endswith(DELETE_SUFFIX):
                self._to_delete.append((now_ms, entry.path, None))
            elif (tp := parse_log_dir(entry.name)) is not None:
                self._known[tp] = None
        marker = os.path.join(self.data_dir, CLEAN_SHUTDOWN_FILE)
        self.clean_start = os.path.exists(marker) or not self._known
        if not self.clean_start:
            self._unrecovered = set(self._known)
            self._to_recover = sorted(self._known, reverse=True)
            logger.warning(
                "%s was not closed cleanly: its %d logs are checked from their recovery points",
                self.data_dir,
                len(self._known),
            )
            self._finish_swaps()
        if os.path.exists(marker):
            # Removed, durably, before the first write of this run.
            os.unlink(marker)
            fsync_dir(self.data_dir)

    def _finish_swaps(self) -> None:
        """Before anybody is served, since it waits for the disk. A clean stop waits for swaps."""
        for tp in self._known:
            try:
                finish_swaps(self._dir(tp), self.env)
            except (OSError, PenstockError) as e:
                logger.error("an interrupted swap of %s is finished when it is opened: %s", tp, e)

    def ensure_meta(self, node_id: int, cluster_id: str) -> dict[str, str]:
        """The directory's ids, written on first use; refuses a directory of another node."""
        meta = read_meta_properties(self.data_dir)
        if meta is None:
            directory_id = uuid_text(self.env.rng.uuid())
            meta = {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": str(node_id),
                "directory.id": directory_id,
            }
            write_meta_properties(self.data_dir, meta)
        for key, value in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
            if meta.get(key, value) != value:
                raise StorageError(
                    f"{self.data_dir} belongs to {key}={meta[key]}, not {value}: "
                    "start the node with its own data directory"
                )
        return meta

    # Logs

    def partitions(self) -> set[TopicPartition]:
        """All partitions that have a directory here, opened or not."""
        return set(self._known)

    def is_stored(self, tp: TopicPartition) -> bool:
        """Whether the partition has a directory here."""
        return tp in self._known

    def opened(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def get(self, tp: TopicPartition) -> Log | None:
        """The log of `tp`, opened if need be; None when there is no directory for it."""
        log = self._logs.get(tp)
        if log is None and tp in self._known:
            log = self._open(tp, read_partition_metadata(self._dir(tp)))
        return log

    def get_or_create(self, tp: TopicPartition, topic_id: Uuid) -> Log:
        """The log of `tp`, made if it is not there; refuses a directory of another topic id."""
        log = self.get(tp)
        if log is None:
            path = self._dir(tp)
            try:
                # A directory that is not known was left by a creation that failed.
                os.makedirs(path, exist_ok=True)
                write_partition_metadata(path, topic_id)
            except OSError as e:
                raise StorageError(f"cannot create {path}: {e}") from e
            self._known[tp] = None
            log = self._open(tp, topic_id)
            log.grows_after = self.checkpoints.removal_of(tp)
            return log
        if log.topic_id is None:
            write_partition_metadata(log.dir, topic_id)
            log.topic_id = topic_id
        if log.topic_id != topic_id:
            raise StorageError(
                f"{log.dir} belongs to topic id {uuid_text(log.topic_id)}, "
                f"not {uuid_text(topic_id)}"
            )
        return log

    def _dir(self, tp: TopicPartition) -> str:
        return os.path.join(self.data_dir, str(tp))

    def _open(self, tp: TopicPartition, topic_id: Uuid | None) -> Log:
        log = load_log(
            tp,
            self._dir(tp),
            self._config_for(tp.topic),
            self.env,
            topic_id=topic_id,
            log_start_offset=self.checkpoints.log_start(tp),
            recovery_point=self.checkpoints.recovery_point(tp),
            clean=tp not in self._unrecovered,
        )
        if log.recovery_point < self.checkpoints.recovery_point(tp):
            log.grows_after = self.checkpoints.lowered(tp, log.recovery_point)
        self._unrecovered.discard(tp)
        self._quiet.pop(tp, None)
        self._logs[tp] = log
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Remove the partition; its files are removed after a delay (`due_deletions`)."""
        if tp not in self._known:
            return
        log = self._logs.pop(tp, None)
        unique = self.env.rng.uuid().hex()
        path = os.path.join(self.data_dir, f"{tp}.{unique}{DELETE_SUFFIX}")
        delay = (log.config if log else self._config_for(tp.topic)).file_delete_delay_ms
        try:
            if log is not None:
                log.move_to(path)
            else:
                os.rename(self._dir(tp), path)
        except OSError as e:
            raise StorageError(f"cannot delete {tp}: {e}") from e
        self._leave(tp)
        self._to_delete.append((self.env.clock.now_ms() + delay, path, log))

    def set_aside(self, tp: TopicPartition) -> str:
        """Rename a directory that no topic claims, so that it is neither used nor lost."""
        path = os.path.join(self.data_dir, f"{tp}.{self.env.rng.uuid().hex()}{STRAY_SUFFIX}")
        try:
            os.rename(self._dir(tp), path)
        except OSError as e:
            raise StorageError(f"cannot set {tp} aside: {e}") from e
        self._leave(tp)
        return path

    def _leave(self, tp: TopicPartition) -> None:
        """The directory of `tp` is no longer there."""
        self._known.pop(tp, None)
        self._quiet.pop(tp, None)
        self._unrecovered.discard(tp)
        self.checkpoints.remove(tp)

    def topic_id_of(self, tp: TopicPartition) -> Uuid | None:
        """The topic id that the directory of `tp` was made for."""
        return read_partition_metadata(self._dir(tp))

    def size_of(self, tp: TopicPartition) -> int:
        """Bytes of record data, without opening the log."""
        log = self._logs.get(tp)
        if log is not None:
            return log.size_bytes
        with os.scandir(self._dir(tp)) as entries:
            return sum(e.stat().st_size for e in entries if e.name.endswith(".log"))

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        stat = os.statvfs(self.data_dir)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    # Duties that a driver calls

    def recovery_pass(self, logs_max: int) -> int:
        """Open up to `logs_max` logs that an unclean stop left unchecked; how many remain.

        A log that cannot be opened is not tried again by a pass, only by its next use.
        """
        waiting = self._to_recover
        while waiting and logs_max:
            tp = waiting.pop()
            if tp not in self._unrecovered:
                continue  # it was used meanwhile
            logs_max -= 1
            try:
                self.get(tp)
            except StorageError as e:
                logger.error("log %s cannot be recovered: %s", tp, e)
        while waiting and waiting[-1] not in self._unrecovered:
            waiting.pop()
        return len(waiting)

    def producer_steps(self, now_ms: int) -> Iterator[None]:
        """Have every open log forget its idle producers, a few logs at a time; what is not open
        does so when it is opened.
        """
        for passed, log in enumerate(list(self._logs.values()), 1):
            log.producers.expiration_ms = self.env.producer_id_expiration_ms
            log.producers.remove_expired(now_ms)
            if passed % RETENTION_LOGS_PER_STEP == 0:
                yield

    def retention_steps(self, now_ms: int) -> Iterator[int]:
        """Apply retention to every log, a few at a time, so that a driver can do other work in
        between; yields how many segments went.
        """
        passed = 0
        for tp in list(self._known):
            gone, was_open = 0, tp in self._logs or self._is_quiet(tp, now_ms)
            try:
                log = self._logs.get(tp) if was_open else self.get(tp)
                if log is not None:
                    gone = delete_old_segments(log, now_ms)
                    if not (was_open or log.deleted_segments or log.unflushed_messages):
                        self._forget(tp, log)
            except StorageError as e:
                logger.error("retention of %s failed: %s", tp, e)
            except InvariantBroken as broken:
                self.on_broken(tp, str(broken))
                continue
            passed += 1
            if gone or not was_open or passed >= RETENTION_LOGS_PER_STEP:
                passed = 0
                yield gone

    def _is_quiet(self, tp: TopicPartition, now_ms: int) -> bool:
        """Whether retention need not even open the log."""
        quiet = self._quiet.get(tp)
        return quiet is not None and now_ms <= quiet[1] and self._config_for(tp.topic) == quiet[0]

    def abandon(self, tp: TopicPartition, why: str) -> None:
        """A log is not to be trusted any more."""
        log = self._logs.get(tp)
        if log is not None and not log.abandoned:
            logger.critical("log %s is abandoned: %s", tp, why)
            log.abandon(why)

    def _forget(self, tp: TopicPartition, log: Log) -> None:
        """Close a log that was opened only for a check, so that memory follows use; nothing was
        written to it since the last flush.
        """
        self._quiet[tp] = log.config, nothing_due_before_ms(log)
        log.release()
        self._note(tp, log)
        del self._logs[tp]

    def flush_due(self, now_ms: int) -> list[Log]:
        """The logs that `flush.ms`, `flush.messages` or a roll want flushed."""
        changes = self.env.changes
        changes.collect()
        due = []
        for log in list(changes.flushing):
            if self._logs.get(log.topic_partition) is log and flush_is_due(log, now_ms):
                due.append(log)
            elif not log.unflushed_messages or log.config.flush_ms == NEVER_MS:
                del changes.flushing[log]  # not before it is written to again
        return due

    def moved_watermarks(self) -> list[TopicPartition]:
        """The partitions whose high watermark may have moved since this was last asked."""
        changes = self.env.changes
        changes.collect()
        moved, changes.watermarks = changes.watermarks, {}
        return [log.topic_partition for log in moved]

    def due_deletions(self, now_ms: int) -> list[str]:
        """Files and directories whose delay is over, for `remove_paths` in any thread."""
        waiting, paths = [], []
        for due, path, log in self._to_delete:
            if due > now_ms:
                waiting.append((due, path, log))
                continue
            if log is not None:
                log.release()
            paths.append(path)
        self._to_delete = waiting
        changes = self.env.changes
        changes.collect()
        for log in list(changes.removing):
            if self._logs.get(log.topic_partition) is log:
                paths += due_deletions(log, now_ms)
            if not log.deleted_segments or self._logs.get(log.topic_partition) is not log:
                del changes.removing[log]
        return paths

    def checkpoint_task(self) -> Callable[[], None]:
        """Note recovery points and log starts; what is returned writes them, in any thread."""
        changes = self.env.changes
        changes.collect()
        for log in changes.to_checkpoint:
            if self._logs.get(log.topic_partition) is log:
                self._note(log.topic_partition, log)
        changes.to_checkpoint.clear()
        return self.checkpoints.task()

    def checkpoint(self) -> None:
        """Write recovery points and log starts, if they have changed, in this thread."""
        self.checkpoint_task()()

    def _note(self, tp: TopicPartition, log: Log) -> None:
        moved = log.log_start_offset > log.segments[0].base_offset
        self.checkpoints.note(tp, log.recovery_point, log.log_start_offset if moved else None)

    def close(self) -> None:
        """Close every log, write the checkpoints and, if all succeeded, the clean-shutdown mark."""
        clean = not self._unrecovered
        clean = close_logs(list(self.opened())) and clean
        try:
            self.checkpoint()
            if clean:
                self._mark_clean()
        except (StorageError, OSError) as e:
            logger.error("%s was not closed cleanly: %s", self.data_dir, e)
        self._logs.clear()
        os.close(self._lock_fd)

    def _mark_clean(self) -> None:
        path = os.path.join(self.data_dir, CLEAN_SHUTDOWN_FILE)
        unlink_if_exists(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, _CLEAN_SHUTDOWN)
            os.fsync(fd)
        finally:
            os.close(fd)
        fsync_dir(self.data_dir)


def parse_log_dir(name: str) -> TopicPartition | None:
    """The partition of a directory name; None if the name is not a partition's."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdecimal():
        return None
    return TopicPartition(topic, int(partition))


def lock_data_dir(data_dir: str) -> int:
    """Make the directory if it is missing and claim it for this process."""
    try:
        os.makedirs(data_dir, exist_ok=True)
        path = os.path.join(data_dir, LOCK_FILE)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise StorageError(f"cannot use the data directory {data_dir}: {e}") from e
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        os.close(fd)
        raise StorageError(
            f"{data_dir} is in use by another process: stop it or choose another directory"
        ) from e
    return fd
