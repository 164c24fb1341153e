"""What the metadata quorum keeps on disk: the `__cluster_metadata` log, its snapshots, and the
quorum-state file.

The log begins at offset 0 or where a snapshot ends. After a snapshot has been written, the log
below the older of the two that are kept goes.

Invariants: what a flush covers never includes what was truncated while it ran; a snapshot that
reaches further than the log replaces the log. Owned by the event loop's thread; only
methods that are documented to wait for the disk may run elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from penstock.base.clock import Clock
from penstock.base.errors import CorruptRecord, StorageError, invariant
from penstock.config.log_config import LogConfig
from penstock.controlling.metadata_snapshots import (
    Encryption,
    Snapshot,
    newest_snapshot,
    remove_older,
    remove_parts,
    stored_snapshots,
)
from penstock.log.files import write_atomically
from penstock.log.flush import FlushTask, flush_begin, flush_done
from penstock.log.log import Log
from penstock.log.retention import delete_old_segments
from penstock.raft.effects import Append
from penstock.raft.state import FILE_NAME, QuorumState
from penstock.raft.stored import LogScan, StoredLog
from penstock.raft.types import NO_EPOCH, OffsetAndEpoch
from penstock.wire.record_batch import BatchHeader
from penstock.wire.records import parse_header

METADATA_LOG_CONFIG = LogConfig(cleanup_policy=frozenset(), retention_ms=-1)


def metadata_log_config(key_id: str) -> LogConfig:
    """The settings of the metadata log; `key_id` is the node's `penstock.encryption.key.id`."""
    return replace(METADATA_LOG_CONFIG, penstock_encryption_key_id=key_id)


_SCAN_BYTES = 4 * 1024 * 1024


class MetadataLog:
    def __init__(self, log: Log, clock: Clock) -> None:
        self.log = log
        self.dir = log.dir
        self._clock = clock
        self._flush: FlushTask | None = None
        remove_parts(self.dir)
        self.snapshot: Snapshot | None = newest_snapshot(self.dir, log.env.keys)
        """The newest one on disk, with its contents until they have been loaded."""
        self._begin_with(self.snapshot)

    def _begin_with(self, snapshot: Snapshot | None) -> None:
        log = self.log
        if snapshot is not None and log.log_end_offset < snapshot.id.offset:
            # The snapshot was fetched, and the process ended before the log had made room for it.
            log.truncate_fully_and_start_at(snapshot.id.offset)
        if log.log_start_offset and (snapshot is None or snapshot.id.offset < log.log_start_offset):
            raise StorageError(
                f"{self.dir} begins at offset {log.log_start_offset}, and the snapshot of what was "
                "before is missing or damaged: let this node join again with an empty data folder"
            )

    @property
    def encryption(self) -> Encryption:
        """How snapshots are written, as the log is."""
        return Encryption(self.log.env.keys, self.log.config.penstock_encryption_key_id)

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def unflushed(self) -> bool:
        return self.log.recovery_point < self.log.log_end_offset

    @property
    def is_new(self) -> bool:
        """Nothing has ever been written."""
        return self.log.log_end_offset == 0 and self.snapshot is None

    # -- the quorum-state file -----------------------------------------------------------------

    def read_state(self) -> QuorumState | None:
        try:
            with open(os.path.join(self.dir, FILE_NAME), encoding="utf-8") as file:
                return QuorumState.from_json(file.read())
        except FileNotFoundError:
            return None

    def write_state(self, text: str) -> None:
        """Replace the file; waits for the disk."""
        try:
            write_atomically(os.path.join(self.dir, FILE_NAME), text.encode())
        except OSError as e:
            raise StorageError(f"cannot write {FILE_NAME} in {self.dir}: {e}") from e

    # -- reading -------------------------------------------------------------------------------

    def batches(
        self, first: int, end: int, read_bytes: int = _SCAN_BYTES
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches from offset `first` on, as far as they begin below `end`."""
        while first < end:
            for header, batch in self.split(self.read(first, end, read_bytes)):
                yield header, batch
                first = header.last_offset + 1

    @staticmethod
    def split(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches in `data`."""
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            yield header, data[position : position + header.size]
            position += header.size

    def read(self, first: int, end: int, max_bytes: int) -> memoryview:
        """Whole batches from `first` on, the first one even when it is larger than `max_bytes`."""
        found = self.log.read(first, max_bytes, up_to_offset=end)
        invariant(found is not None, f"the metadata log has a hole at offset {first}")
        assert found is not None
        data = memoryview(found.read())
        return data[: _whole(data)]

    def stored(self) -> StoredLog:
        """What the quorum has to know of the disk."""
        snapshot = self.snapshot
        scan = LogScan()
        first, start = 0, OffsetAndEpoch(0, NO_EPOCH)
        if snapshot is not None:
            first = snapshot.id.offset
            place = first - 1
            if snapshot.kraft_version is not None:
                scan.versions.append((place, snapshot.kraft_version))
            if snapshot.voters is not None:
                scan.voter_sets.append((place, snapshot.voters))
        if self.log.log_start_offset:
            start = self._begins_with()
        for _, batch in self.batches(first, self.end_offset):
            scan.log_batch(batch)
        return StoredLog(
            start,
            self.end_offset,
            tuple((entry.epoch, entry.start_offset) for entry in self.log.epochs.entries),
            None if snapshot is None else snapshot.id,
            tuple(scan.voter_sets),
            tuple(scan.versions),
        )

    def _begins_with(self) -> OffsetAndEpoch:
        """The snapshot that the log continues; the log's start is moved up to its end."""
        start = self.log.log_start_offset
        found = next(id_ for id_ in stored_snapshots(self.dir) if id_.offset >= start)
        self.log.delete_records(found.offset)
        return found

    # -- writing -------------------------------------------------------------------------------

    def append(self, append: Append) -> None:
        """Write whole batches, which carry their offsets and epochs; `StorageError` if refused."""
        invariant(
            append.first == self.end_offset,
            f"metadata for offset {append.first} cannot follow offset {self.end_offset - 1}",
        )
        self.log.append_as_follower(append.batches)

    def truncate(self, offset: int) -> None:
        self._flush = None
        self.log.truncate_to(offset)

    def flush_begin(self) -> FlushTask:
        """What is to be flushed; its `run` waits for the disk."""
        self._flush = flush_begin(self.log)
        return self._flush

    def flush_done(self, task: FlushTask) -> int | None:
        """The offset below which everything is durable now; None when the log was cut meanwhile."""
        counts = task is self._flush
        self._flush = None
        if not counts:
            task.up_to_offset = min(task.up_to_offset, self.log.recovery_point)
        flush_done(self.log, task)
        return task.up_to_offset if counts else None

    # -- snapshots -----------------------------------------------------------------------------

    def begin_segment(self) -> None:
        """A snapshot is about to be written: what it covers lies in segments of its own."""
        self.log.roll()

    def trim(self) -> OffsetAndEpoch:
        """Remove what the kept snapshots cover; the snapshot that the log begins with now."""
        remove_older(self.dir)
        oldest = stored_snapshots(self.dir)[0]
        self.log.delete_records(oldest.offset)
        delete_old_segments(self.log, self._clock.now_ms())
        return oldest

    def begin_installation(self, snapshot: Snapshot) -> FlushTask:
        """`snapshot` has been fetched and is on disk: it replaces the log. Run what is returned, in
        any thread, before `installed`.
        """
        self._flush = None
        self.log.truncate_fully_and_start_at(snapshot.id.offset)
        return flush_begin(self.log)

    def installed(self, snapshot: Snapshot, flushed: FlushTask) -> None:
        flush_done(self.log, flushed)
        self.snapshot = snapshot
        remove_older(self.dir, keep=1)


def _whole(data: memoryview) -> int:
    """How many bytes of `data` are whole batches."""
    position = 0
    while position < len(data):
        try:
            size = parse_header(data, position).size
        except CorruptRecord:
            break
        if position + size > len(data):
            break
        position += size
    return position
