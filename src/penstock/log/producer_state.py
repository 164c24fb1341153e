"""The partition's knowledge of its idempotent and transactional producers.

Duty: refuse what is out of order, recognise what was appended before, know which transactions are
open, and keep all that across restarts in snapshots (`<offset>.snapshot`).

A batch is judged when it is staged and takes effect on `producers` at once, so that later batches
of the same turn see it; `commit` makes the staged ones final after they were written, `rollback`
takes them back. Open and completed transactions change only on commit: until its marker is written
a transaction is open.

Invariants: `producers` reflects exactly the log below `end_offset` plus what is staged; `ongoing`
is ordered by first offset. Owned by the loop's thread.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final, NamedTuple

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE, PRODUCER_EPOCH_MAX
from penstock.log.files import unlink_if_exists
from penstock.log.producer_snapshot import (
    NO_OFFSET,
    SEQUENCE_MAX,
    BatchMetadata,
    ProducerStateEntry,
    list_snapshots,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from penstock.log.verification import NOT_ASKED, VerificationGuard
from penstock.wire.records import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    parse_end_txn_marker,
    read_records,
)

logger = logging.getLogger("penstock.log")

BATCHES_TO_RETAIN: Final = 5
TRANSACTIONS_V2: Final = 2
"""From this transaction version on every transaction ends with an epoch of its own (KIP-890)."""


class AppendOrigin(Enum):
    """The origin of an append, which decides how much is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # no sequence numbers: only the epoch is checked
    REPLICATION = "replication"  # was checked by the leader


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerStateManager:
    """The producers of one log."""

    __slots__ = (
        "_completed",
        "_log_dir",
        "_snapshots",
        "_started",
        "_undo",
        "end_offset",
        "expiration_ms",
        "guards",
        "ongoing",
        "producers",
        "unreplicated",
    )

    def __init__(self, log_dir: str, expiration_ms: int) -> None:
        self._log_dir = log_dir
        self.expiration_ms = expiration_ms
        self.producers: dict[int, ProducerStateEntry] = {}
        self.ongoing: dict[int, int] = {}
        """First offset -> producer id of each open transaction."""
        self.unreplicated: dict[int, int] = {}
        """First offset -> offset of the marker, for completed ones above the high watermark."""
        self.guards: dict[int, VerificationGuard] = {}
        """Producer id -> its verification in progress; dropped when this replica stops leading."""
        self.end_offset = 0
        self._snapshots: list[int] = []
        self._undo: list[tuple[int, int, ProducerStateEntry | None]] = []
        self._started: list[tuple[int, int]] = []
        self._completed: list[CompletedTxn] = []

    # Appending

    def stage(
        self,
        header: BatchHeader,
        data: bytes | memoryview,
        offset: int,
        origin: AppendOrigin,
        guard: VerificationGuard | None = NOT_ASKED,
    ) -> BatchMetadata | None:
        """Judge a batch that would begin at `offset`; the original if it is a duplicate.

        `guard` is what a client's transactional batch was verified under, None if it was not.
        """
        producer_id = header.producer_id
        old = self.producers.get(producer_id)
        if header.attributes & CONTROL_FLAG:
            self._stage_marker(header, data, offset, origin, old)
            return None
        entry = old if old is not None else ProducerStateEntry(producer_id)
        epoch, first = header.producer_epoch, header.base_sequence
        count = header.last_offset_delta
        last = (first + count) & SEQUENCE_MAX if first != NO_SEQUENCE else NO_SEQUENCE
        if origin is AppendOrigin.CLIENT:
            if epoch == entry.epoch:
                for batch in entry.batches:
                    if batch.last_sequence == last and batch.first_sequence == first:
                        return batch
            if guard is not NOT_ASKED and header.attributes & TRANSACTIONAL_FLAG:
                self.check_verified(producer_id, epoch, guard)
            _check_epoch(producer_id, epoch, entry)
            self._check_sequence(header, entry, offset)
        elif origin is AppendOrigin.COORDINATOR:
            _check_epoch(producer_id, epoch, entry)
        txn_first = entry.current_txn_first_offset
        if header.attributes & TRANSACTIONAL_FLAG:
            self.guards.pop(producer_id, None)
            if txn_first < 0:
                txn_first = offset
                self._started.append((offset, producer_id))
        elif txn_first >= 0 and origin is not AppendOrigin.REPLICATION:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction and sent a batch outside of it",
            )
        batch = BatchMetadata(first, last, offset + count, count, header.max_timestamp)
        # The batches of another epoch are forgotten: their sequences mean nothing in this one.
        batches = (
            (*entry.batches[1 - BATCHES_TO_RETAIN :], batch) if epoch == entry.epoch else (batch,)
        )
        self._undo.append((offset, producer_id, old))
        self.producers[producer_id] = ProducerStateEntry(
            producer_id, epoch, entry.coordinator_epoch, header.max_timestamp, txn_first, batches
        )
        return None

    def _check_sequence(self, header: BatchHeader, entry: ProducerStateEntry, offset: int) -> None:
        first = header.base_sequence
        if entry.epoch == NO_PRODUCER_EPOCH:
            # The producer is unknown (expired, or its data is deleted): any first sequence is
            # accepted.
            if self.guards:
                self._check_guarded_sequence(header)
            return
        last = entry.last_sequence if header.producer_epoch == entry.epoch else NO_SEQUENCE
        if first != last + 1 and not (first == 0 and last == SEQUENCE_MAX):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} (epoch {header.producer_epoch}) at offset {offset} "
                f"sent sequence {first} after {last}",
            )

    def _check_guarded_sequence(self, header: BatchHeader) -> None:
        guard = self.guards.get(header.producer_id)
        if guard is None:
            return
        first = header.base_sequence
        lowest = 0 if guard.starts_at_zero else guard.lowest_sequence
        if first > lowest:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} (epoch {header.producer_epoch}) sent sequence "
                f"{first}; its transaction begins here with {lowest}",
            )

    def _stage_marker(
        self,
        header: BatchHeader,
        data: bytes | memoryview,
        offset: int,
        origin: AppendOrigin,
        old: ProducerStateEntry | None,
    ) -> None:
        if not header.record_count:
            return  # Compaction keeps an empty batch of a marker whose transaction was removed.
        record = read_records(data)[0]
        marker = parse_end_txn_marker(record)
        entry = old if old is not None else ProducerStateEntry(header.producer_id)
        if origin is not AppendOrigin.REPLICATION:
            self.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        self.guards.pop(header.producer_id, None)
        if entry.current_txn_first_offset >= 0:
            self._completed.append(
                CompletedTxn(
                    header.producer_id, entry.current_txn_first_offset, offset, not marker.commit
                )
            )
        self._undo.append((offset, header.producer_id, old))
        self.producers[header.producer_id] = ProducerStateEntry(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            record.timestamp,
            NO_OFFSET,
            entry.batches if header.producer_epoch == entry.epoch else (),
        )

    # What a leader asks before it appends

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, starts_at_zero: bool
    ) -> VerificationGuard | None:
        """The guard under which a transactional batch is to be verified with the coordinator.

        None: its transaction is open here already, which nobody but the coordinator can change.
        """
        if self._is_open(producer_id, epoch):
            return None
        guard = self.guards.get(producer_id)
        if guard is None or guard.epoch < epoch:
            guard = VerificationGuard(epoch, sequence, now_ms, starts_at_zero=starts_at_zero)
            self.guards[producer_id] = guard
        elif guard.epoch == epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def check_verified(self, producer_id: int, epoch: int, guard: VerificationGuard | None) -> None:
        """Refuse a transactional batch that is neither part of an open transaction nor verified."""
        if self._is_open(producer_id, epoch):
            return
        if guard is None or self.guards.get(producer_id) is not guard:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch of producer {producer_id} (epoch {epoch}) is not part of an open "
                "transaction",
            )

    def _is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction of this epoch here; it may be fenced."""
        entry = self.producers.get(producer_id)
        if entry is None:
            return False
        _check_epoch(producer_id, epoch, entry)
        return entry.epoch == epoch and entry.current_txn_first_offset >= 0

    def check_coordinator_append(self, producer_id: int, epoch: int) -> None:
        """Refuse what `stage` would refuse a coordinator's transactional batch for."""
        entry = self.producers.get(producer_id)
        if entry is not None:
            _check_epoch(producer_id, epoch, entry)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> None:
        """Refuse the end of a transaction that comes from the past.

        From transactions version 2 on a marker has a greater epoch than the transaction's data: one
        with the same epoch is an old transaction's, unless it is the repetition of the last marker
        or there are no greater epochs left.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        _check_epoch(producer_id, epoch, entry)
        if (
            transaction_version >= TRANSACTIONS_V2
            and epoch == entry.epoch
            and entry.current_txn_first_offset >= 0
            and epoch != PRODUCER_EPOCH_MAX
        ):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker with epoch {epoch} cannot end a transaction of that epoch of producer "
                f"{producer_id}: it belongs to an earlier one",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, current is {entry.coordinator_epoch}",
            )

    # Staged and committed

    def mark(self) -> tuple[int, int, int]:
        """A point that `rollback` can go back to."""
        return len(self._undo), len(self._started), len(self._completed)

    def rollback(self, to: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Take back what was staged since `to`."""
        undo, producers = self._undo, self.producers
        while len(undo) > to[0]:
            _, producer_id, old = undo.pop()
            _restore(producers, producer_id, old)
        del self._started[to[1] :]
        del self._completed[to[2] :]

    def commit(
        self, end_offset: int, up_to: tuple[int, int, int] | None = None
    ) -> list[CompletedTxn]:
        """What was staged, all or up to a mark, is in the log now; the transactions that it
        completes.

        Each of them is to be noted in the transaction index, then handed to `complete`, in order.
        """
        self.end_offset = end_offset
        undo, started, completed = up_to or self.mark()
        del self._undo[:undo]
        if not started and not completed:
            return []
        self.ongoing.update(self._started[:started])
        del self._started[:started]
        ended = self._completed[:completed]
        del self._completed[:completed]
        return ended

    def last_stable_offset(self, txn: CompletedTxn) -> int:
        """The last stable offset once `txn` is complete, as its entry in the index states it."""
        for first_offset, producer_id in self.ongoing.items():
            if producer_id != txn.producer_id:
                return min(first_offset, txn.last_offset + 1)
        return txn.last_offset + 1

    def complete(self, txn: CompletedTxn) -> None:
        """The transaction is closed; it is unstable until the high watermark passes its marker."""
        del self.ongoing[txn.first_offset]
        self.unreplicated[txn.first_offset] = txn.last_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        if self.unreplicated:
            pending = self.unreplicated.items()
            self.unreplicated = {f: last for f, last in pending if last >= high_watermark}

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open or whose end is not committed yet."""
        first = next(iter(self.ongoing), None)
        if self.unreplicated:
            oldest = min(self.unreplicated)
            return oldest if first is None else min(first, oldest)
        return first

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers that were idle for `producer.id.expiration.ms` (no open transaction)."""
        for producer_id in [p for p, e in self.producers.items() if self._expired(e, now_ms)]:
            del self.producers[producer_id]
        for producer_id, guard in list(self.guards.items()):
            if now_ms - guard.created_ms >= self.expiration_ms:
                del self.guards[producer_id]

    def _expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        idle = now_ms - entry.last_timestamp
        return entry.current_txn_first_offset < 0 and idle >= self.expiration_ms

    # Snapshots

    def take_snapshot(self, offset: int) -> None:
        """Write the state at `offset` (what is staged at or above it left out), unless done before.

        It is durable with the next flush.
        """
        if self._snapshots and self._snapshots[-1] >= offset:
            return
        producers = self.producers
        if self._undo:
            producers = dict(producers)
            for staged_at, producer_id, old in reversed(self._undo):
                if staged_at >= offset:
                    _restore(producers, producer_id, old)
        write_snapshot(snapshot_path(self._log_dir, offset), producers.values(), sync=False)
        self._snapshots.append(offset)

    def snapshot_paths(self, from_offset: int) -> list[str]:
        return [snapshot_path(self._log_dir, o) for o in self._snapshots if o >= from_offset]

    def find_snapshots(self) -> None:
        self._snapshots = list_snapshots(self._log_dir)

    def remove_stray_snapshots(self, base_offsets: set[int]) -> None:
        """Keep the snapshots that belong to segments, and the newest."""
        for offset in self._snapshots[:-1]:
            if offset not in base_offsets:
                self.delete_snapshot(offset)

    def delete_snapshot(self, offset: int) -> None:
        """Remove the snapshot of a deleted segment, if there is one."""
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            unlink_if_exists(snapshot_path(self._log_dir, offset))

    def move_to(self, log_dir: str) -> None:
        self._log_dir = log_dir

    def load(self, log_start: int, log_end: int, now_ms: int) -> int:
        """Start again from the newest good snapshot in the log; the offset from which to replay."""
        self._forget()
        for offset in [o for o in self._snapshots if o > log_end or o < log_start]:
            self.delete_snapshot(offset)
        while self._snapshots:
            offset = self._snapshots[-1]
            path = snapshot_path(self._log_dir, offset)
            try:
                entries = read_snapshot(path)
            except (CorruptRecord, FileNotFoundError) as e:
                logger.warning("producer snapshot is unusable, trying an older one: %s", e)
                self.delete_snapshot(offset)
                continue
            self.producers = {e.producer_id: e for e in entries if not self._expired(e, now_ms)}
            open_txns = [
                (e.current_txn_first_offset, e.producer_id)
                for e in entries
                if e.current_txn_first_offset >= 0
            ]
            self.ongoing = dict(sorted(open_txns))
            self.end_offset = offset
            return offset
        self.end_offset = log_start
        return log_start

    def _forget(self) -> None:
        self.producers.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self.guards.clear()
        self._undo.clear()
        self._started.clear()
        self._completed.clear()

    def reset(self, offset: int) -> None:
        """Forget everything, in memory and on disk: the log starts again at `offset`."""
        self._forget()
        for snapshot in self._snapshots[:]:
            self.delete_snapshot(snapshot)
        self.end_offset = offset


def _check_epoch(producer_id: int, epoch: int, entry: ProducerStateEntry) -> None:
    if epoch < entry.epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} has epoch {epoch}, which is below its last seen epoch "
            f"{entry.epoch}",
        )


def _restore(
    producers: dict[int, ProducerStateEntry], producer_id: int, old: ProducerStateEntry | None
) -> None:
    if old is None:
        del producers[producer_id]
    else:
        producers[producer_id] = old
