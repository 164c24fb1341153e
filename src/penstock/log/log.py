"""One replica's log: the directory `topic-partition` and everything in it.

Duty: append, read, roll, truncate; offsets and leader epochs; producers. Other modules do the rest
to a log: loading and recovery in `log_loader`, flushes in `flush`, retention and deletion in
`retention`, the swap of compacted segments in `replacement`, search by time in `time_lookup`.

An append is two steps, so that one loop turn's appends share a system call: `stage` judges batches
and gives them offsets, `write_staged` writes all that is staged. If the write fails, everything
staged is forgotten, the file is cut back to its last good end, and the log refuses writes
(`failure`) until a pause is over; then the next write tries again. Reads are never refused. A large
write may run in a worker thread (`begin_write`, `end_write`).

Invariants: batches lie in offset order without overlap; nothing above `log_end_offset` is visible;
what lies below `recovery_point` is durable and is never cut except by `truncate_to`; a recovery
point that was lowered is on the disk before the log grows again (`offset_checkpoints`).

Owned by the loop's thread. Only the methods of `LogSlice`, `BackgroundWrite.run`, `FlushTask.run`
and the documented parts of a `SegmentSwap` may run elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode, StorageError, invariant
from penstock.base.ids import TopicPartition, Uuid
from penstock.config.log_config import LogConfig
from penstock.keys.provider import KeyUnavailable
from penstock.log import truncation
from penstock.log.background_write import BackgroundWrite, BackgroundWrites
from penstock.log.environment import LogEnvironment
from penstock.log.epoch_cache import LeaderEpochFileCache
from penstock.log.health import ReadDamage, WriteHealth
from penstock.log.index import AbortedTxn
from penstock.log.limits import BACKGROUND_WRITE_BYTES_MIN
from penstock.log.log_segments import LogSegments
from penstock.log.offset_checkpoints import NOTHING
from penstock.log.producer_state import AppendOrigin, CompletedTxn, ProducerStateManager
from penstock.log.replacement import SegmentSwap
from penstock.log.roll import RollPolicy, roll_at, write_rolling
from penstock.log.segment import LogSegment
from penstock.log.slice import LogSlice
from penstock.log.staging import AppendInfo, Batch, StagedAppends, check_replicated
from penstock.log.verification import NOT_ASKED, VerificationGuard

__all__ = ["AppendInfo", "Batch", "Log"]


class Log:
    """One partition's log; made by `log_loader.load_log`."""

    __slots__ = (
        "_config",
        "_now_ms",
        "_on_corrupt",
        "_roll_policy",
        "_staged",
        "abandoned",
        "batches_unindexed",
        "before_change",
        "bytes_in",
        "cleaning",
        "cuts",
        "deleted_segments",
        "dir",
        "env",
        "epochs",
        "grows_after",
        "health",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "marked_changed",
        "producers",
        "recovery_point",
        "segments",
        "swap",
        "topic_id",
        "topic_partition",
        "unsynced_names",
        "writes",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log_dir: str,
        config: LogConfig,
        env: LogEnvironment,
        *,
        topic_id: Uuid | None,
        segments: LogSegments,
        producers: ProducerStateManager,
        epochs: LeaderEpochFileCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self._config = config
        self.topic_partition = topic_partition
        self.dir = log_dir
        self.topic_id = topic_id
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.grows_after = NOTHING
        """The change of the recovery points that must be on the disk before the log grows."""
        self.high_watermark: int | None = None
        """Set by the partition; None means that everything in the log is committed."""
        self.health = WriteHealth(str(topic_partition))
        self._on_corrupt = ReadDamage(str(topic_partition)).report
        self.bytes_in = 0
        self.batches_unindexed = 0
        """Batches since indexes and producer state were last written."""
        self.cuts = 0
        """How often the log was truncated: the result of a task begun before is discarded."""
        self.cleaning = False
        """Set while compaction works on copies of the segments: retention leaves them alone."""
        self.swap: SegmentSwap | None = None
        """A compacted segment that the next start would swap in, although this one has not yet."""
        self.unsynced_names = False
        """Whether the next flush has to make durable that files were removed."""
        self.marked_changed = False
        """Whether the log is marked for the next housekeeping pass: see `changes`."""
        self.before_change: Callable[[], None] | None = None
        """The owner's way to write what is staged, before the log is changed otherwise."""
        self.abandoned = False
        """Whether what memory says of the log is not trusted any more (`abandon`)."""
        self.env = env
        self._now_ms = self.last_flush_ms = env.clock.now_ms()
        self.deleted_segments: list[tuple[int, LogSegment]] = []
        self._staged = StagedAppends(producers, log_end_offset)
        self.writes = BackgroundWrites()
        self.config = config
        segments.active.jitter_ms = self._roll_policy.jitter_ms(env)

    @property
    def name(self) -> str:
        return str(self.topic_partition)

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        if config.penstock_encryption_key_id != self._config.penstock_encryption_key_id:
            self.write_out()  # what is staged was measured for segments as they were until now
        self._config = config
        self._roll_policy = RollPolicy(config)
        self._staged.extra = self._roll_policy.extra_bytes
        self.mark_changed()

    @property
    def failure(self) -> str | None:
        """Why writes are refused; None if they are not."""
        return self.health.failure

    def mark_changed(self) -> None:
        """Mark the log for the next housekeeping pass."""
        if not self.marked_changed:
            self.marked_changed = True
            self.env.changes.add(self)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def rolled_unflushed(self) -> bool:
        """Whether closed segments wait for a flush, which lets the recovery point pass them."""
        return self.recovery_point < self.segments.active.base_offset

    # Appending

    def stage(
        self,
        batches: list[Batch],
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = NOT_ASKED,
    ) -> AppendInfo:
        """Judge `batches`, give them offsets and queue them for `write_staged`: all or none.

        `guard` is what a client's transactional batch was verified under, None if it was not.
        """
        if self.health.failure is not None:
            self.health.admit(now_ms)
        if self.grows_after:
            self._write_recovery_point()
        staged = self._staged
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, staged.end_offset)
        self._now_ms = now_ms
        bytes_max = self._roll_policy.segment_bytes
        return staged.add(batches, leader_epoch, origin, self.log_start_offset, bytes_max, guard)

    def append(
        self,
        batches: list[Batch],
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """`stage` and `write_staged` in one."""
        info = self.stage(batches, leader_epoch, now_ms, origin)
        self.write_staged()
        return info

    @property
    def waits_for_checkpoint(self) -> bool:
        """Whether the log should not grow yet: an append now would write the recovery points."""
        checkpoints = self.env.checkpoints
        return checkpoints is not None and not checkpoints.holds(self.grows_after)

    def _write_recovery_point(self) -> None:
        """See to it that no recovery begins behind what is about to be written."""
        if self.waits_for_checkpoint and self.env.checkpoints is not None:
            self.env.checkpoints.write()  # rarely: followers wait for a thread that does it
        self.grows_after = NOTHING

    def append_as_follower(self, buf: bytes | memoryview, leader_epoch: int | None = None) -> None:
        """Append batches that carry their offsets and leader epochs already.

        `leader_epoch` is the epoch of the leader that sent them. Batches of a later epoch are
        refused: they mean that the sender lost its leadership and replaced the end of its log while
        it was being read.
        """
        self.write_out()
        self._now_ms = now_ms = self.env.clock.now_ms()
        if self.health.failure is not None:
            self.health.admit(now_ms)
        if self.grows_after:
            self._write_recovery_point()
        view, end = memoryview(buf), self.log_end_offset
        for position, header in check_replicated(view, end, leader_epoch, self.name):
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._staged.add_replicated(header, view[position : position + header.size])
        self.write_staged()

    def write_staged(self) -> None:
        """Write all that is staged; on `StorageError` (the disk refused) none of it is kept."""
        while self.writes:
            self._end_first_write()
        staged = self._staged
        if not staged.batches:
            return
        first, end, total = self.log_end_offset, staged.end_offset, staged.size
        active, policy = self.segments.active, self._roll_policy
        try:
            if policy.fits(active, total, staged.max_timestamp, end - 1, self._now_ms):
                active.append(staged.buffers, total, staged.batches, first, policy.index_interval)
            else:
                write_rolling(self, policy, staged, self._now_ms)
            self._commit(staged)
        except (OSError, CorruptRecord, KeyUnavailable) as e:
            raise self._write_failed(e) from e
        staged.clear(end)

    def begin_write(self) -> BackgroundWrite | None:
        """Begin to write what is staged. The caller calls `run` in any thread and then `end_write`.
        None if the write is small or needs a roll: then `write_staged` does it.
        """
        staged, active, writes = self._staged, self.segments.active, self.writes
        total, end = writes.size + staged.size, staged.end_offset
        fits = self._roll_policy.fits(active, total, staged.max_timestamp, end - 1, self._now_ms)
        if not fits or staged.size < BACKGROUND_WRITE_BYTES_MIN:
            return None
        try:
            write = writes.begin(active, staged, self.log_end_offset, self.producers.mark())
        except (OSError, CorruptRecord) as e:
            raise self._write_failed(e) from e
        self._staged = StagedAppends(self.producers, end, self._roll_policy.extra_bytes)
        return write

    def end_write(self, write: BackgroundWrite) -> None:
        """Make `write` and those before it part of the log, waiting for them if necessary. On
        `StorageError` the write that failed and everything begun or staged after it is dropped.
        """
        while not write.ended:
            self._end_first_write()
        if write.failure is not None:
            raise write.failure

    def _end_first_write(self) -> None:
        write = self.writes.first()
        try:
            write.finish(self._roll_policy.index_interval)
            self._commit(write.staged, write.mark)
        except (OSError, CorruptRecord) as e:
            raise self._write_failed(e) from e
        self.writes.end_first()

    def _commit(self, staged: StagedAppends, mark: tuple[int, int, int] | None = None) -> None:
        """Staged batches, up to that mark of the producers, are written: they join the log."""
        end = staged.end_offset
        for txn in self.producers.commit(end, mark):
            self._complete(txn)
        self.log_end_offset = end
        self.bytes_in += staged.size
        self.batches_unindexed += len(staged.batches)
        if not self.marked_changed:
            self.mark_changed()
        if self.health.failure is not None:
            self.health.heal()

    def _complete(self, txn: CompletedTxn) -> None:
        if txn.aborted:
            segment = self.segments[self.segments.floor_index(txn.last_offset)]
            stable = self.producers.last_stable_offset(txn)
            segment.txn_index.append(
                AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable)
            )
        self.producers.complete(txn)

    def _write_failed(self, error: Exception) -> StorageError:
        """Forget what was staged and cut back what was written of it."""
        failure = self.refused(error)
        end = self.log_end_offset
        self._staged.clear(end)
        self.producers.rollback()
        try:
            if self.writes:
                self.writes.fail(failure)
                self.segments.active.cut_back()
            # A single write has cut itself back; one that rolled or completed a transaction has
            # not.
            active = self.segments.active
            if (
                active.base_offset > end
                or active.find(end) is not None
                or self.producers.end_offset != end
            ):
                truncation.cut_segments(self, end)
                truncation.reload_producers(self, end)
        except (OSError, CorruptRecord) as e:
            self.health.fail_for_good(f"a failed write could not be cut back: {e}")
        return failure

    def refused(self, error: Exception) -> StorageError:
        """The disk has refused a write: refuse further ones for a pause; the error to raise."""
        return self.health.fail(error, self.env.clock.now_ms())

    def write_out(self) -> None:
        """Write until nothing is staged. Every other change of the log begins with this."""
        if self.has_staged:
            (self.before_change or self.write_staged)()
            invariant(not self.has_staged, f"{self.name}: something stays staged")

    @property
    def has_staged(self) -> bool:
        """Whether something is staged, or being written."""
        return bool(self._staged.batches or self.writes)

    def abandon(self, why: str) -> None:
        """Drop what is staged, and write nothing any more: only a start can tell what is there."""
        self.abandoned = True
        self.health.fail_for_good(why)
        self.writes.fail(StorageError(why))
        self._staged.clear(self.log_end_offset)

    # Rolling

    def roll(self) -> None:
        """Close the active segment and begin another one at the end of the log."""
        self.write_out()
        try:
            roll_at(self, self._roll_policy, self.log_end_offset, self._now_ms)
        except OSError as e:
            raise self.refused(e) from e

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one: bool = True
    ) -> LogSlice | None:
        """The batches from the one that holds `offset` on, below `up_to_offset`, of one segment.

        At most `max_bytes`, but with `min_one` the first batch whole; None when there is nothing.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} lies outside {self.log_start_offset} to {end}",
            )
        if offset >= up_to_offset:
            return None
        try:
            return self.segments.slice_from(
                offset, max_bytes, end, up_to_offset, min_one, self._on_corrupt
            )
        except CorruptRecord as damage:
            self._on_corrupt(damage)
            raise
        except OSError as e:
            raise StorageError(f"cannot read {self.name} at offset {offset}: {e}") from e

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below `leader_epoch`, where it ends); (-1, -1) when unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Transactions

    def update_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if not self.marked_changed:
            self.mark_changed()
        self.producers.on_high_watermark(high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Where reads of committed data end."""
        bound = self.log_end_offset if self.high_watermark is None else self.high_watermark
        unstable = self.producers.first_unstable_offset
        # Records of an open transaction may have been deleted, and nobody can read from there.
        return bound if unstable is None else min(max(unstable, self.log_start_offset), bound)

    def aborted_transactions(self, fetch_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap [fetch_offset, upper_bound)."""
        return self.segments.aborted_transactions(fetch_offset, upper_bound)

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Drop everything at or above `offset` (a batch that holds it goes as a whole)."""
        self.write_out()
        if offset < self.log_end_offset:
            self._cut(truncation.truncate_to, offset)
        else:
            # A leader epoch may have begun here and brought no record: it is not in this log.
            self.epochs.truncate_from_end(self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`."""
        self.write_out()
        self._cut(truncation.truncate_fully, offset)

    def _cut(self, how: Callable[[Log, int], int], offset: int) -> None:
        flushed = self.recovery_point
        try:
            if self.swap is not None:
                self.swap.cancel()  # it holds what is about to go
            end = how(self, offset)
        except OSError as e:
            # Neither the old nor the new end is certain; recovery at the next start finds it.
            self.health.fail_for_good(f"truncation to {offset} failed: {e}")
            raise StorageError(f"{self.name} cannot be truncated to {offset}: {e}") from e
        self.cuts += 1
        if self.recovery_point < flushed and self.env.checkpoints is not None:
            self.grows_after = self.env.checkpoints.lowered(
                self.topic_partition, self.recovery_point
            )
        self.unsynced_names = True
        self.mark_changed()
        self.log_end_offset = end
        self._staged.clear(end)
        if self.high_watermark is not None:
            self.high_watermark = min(self.high_watermark, end)

    def delete_records(self, up_to_offset: int) -> None:
        """Move the log start; the segments below it go with the next pass of `retention`."""
        truncation.move_log_start(self, up_to_offset)
        self.mark_changed()

    def swap_begin(self, base_offset: int, replaced: Iterable[int]) -> SegmentSwap:
        """Begin to swap a compacted segment (`.cleaned` files) in for those it was made from."""
        self.swap = SegmentSwap(self, base_offset, replaced)
        return self.swap

    # Ending

    def release(self) -> None:
        """Release descriptors and memory without writing anything."""
        for segment in (*self.segments, *(s for _, s in self.deleted_segments)):
            segment.close()

    def move_to(self, log_dir: str) -> None:
        """Rename the directory; reads in progress continue."""
        os.rename(self.dir, log_dir)
        self.dir = log_dir
        self.producers.move_to(log_dir)
        self.epochs.move_to(log_dir)
        for segment in self.segments:
            segment.move_to(log_dir)
