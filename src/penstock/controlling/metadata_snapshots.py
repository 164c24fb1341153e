"""Snapshots of the metadata on disk, in Kafka's format: `<end offset>-<epoch>.checkpoint`.

A file is a run of record batches: a control batch with the snapshot's header, the quorum's
version and its voters; batches of metadata records; a control batch with the footer. It stands
for everything below `end offset` of the metadata log, whose last record had `epoch`.

Where the metadata is encrypted, so is the file (`log.sealed_file`), by each node for itself. What
goes to other nodes is plain, and so are all positions in it.

A snapshot is written in steps of `RECORDS_PER_STEP`, so that the loop serves others in between,
into a `.part` file that gets its name only when it is on disk. One whose footer or checksums are
not as they must be does not count: the next older one is taken. `SNAPSHOTS_KEPT` are kept, the
older one for followers that are fetching it.

Limits: `PIECE_BYTES_MAX` of a snapshot per FetchSnapshot. Owned by the event loop's thread; only
`finish` may run elsewhere.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import METADATA_TOPIC_ID
from penstock.keys.data_keys import DataKeys
from penstock.log.files import fsync_dir, unlink_if_exists, write_all
from penstock.log.key_file import KeyFile
from penstock.log.sealed_file import SealedReader, SealedWriter, read_head
from penstock.metadata.records import MetadataRecord, encode_record
from penstock.raft import control_records
from penstock.raft.types import OffsetAndEpoch
from penstock.raft.voters import VoterSet
from penstock.wire.messages.control_records import SnapshotHeaderRecord
from penstock.wire.record_batch import BatchHeader, check_batches
from penstock.wire.records import ControlType, Record, build_batch, control_type, read_records

logger = logging.getLogger("penstock.controlling")

RECORDS_PER_STEP = 64
SNAPSHOTS_KEPT = 2
PIECE_BYTES_MAX = 1024 * 1024

_SUFFIX = ".checkpoint"
_PART_SUFFIX = ".part"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class Snapshot(NamedTuple):
    """A snapshot that was read and checked."""

    id: OffsetAndEpoch
    kraft_version: int | None
    voters: VoterSet | None
    last_timestamp_ms: int
    batches: list[memoryview]
    """The batches of metadata records."""


def file_name(id_: OffsetAndEpoch) -> str:
    return f"{id_.offset:020}-{id_.epoch:010}{_SUFFIX}"


def stored_snapshots(directory: str) -> list[OffsetAndEpoch]:
    """The snapshots in `directory`, oldest first."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(OffsetAndEpoch(int(m[1]), int(m[2])) for m in found if m)


def remove_parts(directory: str) -> None:
    """Remove what was being written when the process ended."""
    for name in os.listdir(directory):
        if name.endswith(_SUFFIX + _PART_SUFFIX):
            unlink_if_exists(os.path.join(directory, name))


def remove_older(directory: str, keep: int = SNAPSHOTS_KEPT) -> None:
    """Remove all but the newest `keep` snapshots."""
    for id_ in stored_snapshots(directory)[:-keep]:
        unlink_if_exists(os.path.join(directory, file_name(id_)))


def newest_snapshot(directory: str, keys: DataKeys) -> Snapshot | None:
    """The newest snapshot that is whole; damaged ones are logged. `KeyUnavailable` where one
    cannot be decrypted: it may be whole.
    """
    for id_ in reversed(stored_snapshots(directory)):
        try:
            return read_snapshot(directory, id_, keys)
        except CorruptRecord as e:
            logger.error("a snapshot of the metadata is damaged and is left out: %s", e)
    return None


def read_snapshot(
    directory: str, id_: OffsetAndEpoch, keys: DataKeys, *, part: bool = False
) -> Snapshot:
    """Read and check one; `CorruptRecord` says what is wrong with it."""
    path = os.path.join(directory, file_name(id_) + (_PART_SUFFIX if part else ""))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        view = memoryview(_content(fd, path, id_, keys, 0, os.fstat(fd).st_size)[1])
    finally:
        os.close(fd)
    try:
        batches = [(header, view[at : at + header.size]) for at, header in check_batches(view)]
        return _parsed(id_, batches)
    except (CorruptRecord, ValueError, IndexError) as e:
        raise CorruptRecord(f"{path}: {e}") from e


def _parsed(id_: OffsetAndEpoch, batches: list[tuple[BatchHeader, memoryview]]) -> Snapshot:
    if not batches:
        raise CorruptRecord("the snapshot is empty")
    head = _only(batches[0], ControlType.SNAPSHOT_HEADER, 0)
    _only(batches[-1], ControlType.SNAPSHOT_FOOTER, -1)
    kraft_version: int | None = None
    voters: VoterSet | None = None
    for header, batch in batches:
        for _, value in control_records.read_control(batch, header):
            if isinstance(value, VoterSet):
                voters = value
            else:
                kraft_version = value
    return Snapshot(
        id_,
        kraft_version,
        voters,
        SnapshotHeaderRecord.decode(head.value or b"", 0).last_contained_log_timestamp,
        [batch for header, batch in batches if not header.is_control],
    )


def _only(batch: tuple[BatchHeader, memoryview], kind: ControlType, index: int) -> Record:
    """The control record of `kind` that must stand in `batch` at `index`."""
    record = read_records(batch[1])[index] if batch[0].is_control else None
    if record is None or control_type(record) is not kind:
        raise CorruptRecord(f"the snapshot has no {kind.name} in its place")
    return record


def _content(
    fd: int, path: str, id_: OffsetAndEpoch, keys: DataKeys, position: int, size: int
) -> tuple[int, bytes]:
    """The size of the plain file, and a part of it."""
    head = read_head(fd, path)
    if head is None:
        return os.fstat(fd).st_size, os.pread(fd, size, position)
    reader = SealedReader(fd, path, file_name(id_), head, keys)
    return reader.size, reader.read(position, size)


class Encryption(NamedTuple):
    """How snapshots are written: by which keys, by the one of which id (empty: plain)."""

    keys: DataKeys
    key_id: str

    def writer(self, id_: OffsetAndEpoch) -> SealedWriter | None:
        if not self.key_id:
            return None
        key = self.keys.take(self.key_id)
        key_file = KeyFile(METADATA_TOPIC_ID, 0, id_.offset, key.wrapped)
        return SealedWriter(key, key_file, file_name(id_))


class _PartFile:
    """A snapshot that is being made: it gets its name when it is whole and on disk."""

    def __init__(self, directory: str, id_: OffsetAndEpoch, encryption: Encryption) -> None:
        self.id = id_
        self.size = 0
        """Of the plain file."""
        self._stored = 0
        self._sealed = encryption.writer(id_)
        self._directory = directory
        self._path = os.path.join(directory, file_name(id_) + _PART_SUFFIX)
        self._fd = _opening(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if self._sealed is not None:
            self._write(self._sealed.head)

    def _append(self, data: bytes | memoryview) -> None:
        self._write(data if self._sealed is None else self._sealed.add(data))
        self.size += len(data)

    def _write(self, data: bytes | memoryview) -> None:
        try:
            write_all(self._fd, data, self._stored)
        except OSError as e:
            raise StorageError(f"cannot write {self._path}: {e}") from e
        self._stored += len(data)

    def _complete(self) -> None:
        """Everything was appended."""
        if self._sealed is not None:
            self._write(self._sealed.end())
            self._sealed = None

    def finish(self) -> None:
        """Make it durable and give it its name; waits for the disk."""
        try:
            os.fsync(self._fd)
            os.replace(self._path, os.path.join(self._directory, file_name(self.id)))
            fsync_dir(self._directory)
        except OSError as e:
            raise StorageError(f"cannot write {self._path}: {e}") from e
        finally:
            os.close(self._fd)

    def abandon(self) -> None:
        os.close(self._fd)
        unlink_if_exists(self._path)


class SnapshotWriter(_PartFile):
    """Writes `records` step by step: `step` until it returns True, then `finish`."""

    def __init__(
        self,
        directory: str,
        id_: OffsetAndEpoch,
        *,
        first: list[Record],
        last_timestamp_ms: int,
        records: Iterator[MetadataRecord],
        metadata_version: int,
        encryption: Encryption,
    ) -> None:
        """`first`: the quorum's own records; `metadata_version`: how `records` are written."""
        super().__init__(directory, id_, encryption)
        self._records = records
        self._level = metadata_version
        self._timestamp_ms = last_timestamp_ms
        self._offset = 0
        self._batch(first, control=True)

    def step(self) -> bool:
        """Write some more; True when everything is written."""
        some = [
            Record(0, self._timestamp_ms, None, encode_record(record, self._level))
            for record in islice(self._records, RECORDS_PER_STEP)
        ]
        if some:
            self._batch(some, control=False)
        if len(some) == RECORDS_PER_STEP:
            return False
        self._batch([control_records.snapshot_footer(self._timestamp_ms)], control=True)
        self._complete()
        return True

    def _batch(self, records: list[Record], *, control: bool) -> None:
        batch = build_batch(
            records,
            base_offset=self._offset,
            control=control,
            partition_leader_epoch=self.id.epoch,
        )
        self._offset += len(records)
        self._append(batch)


class SnapshotDownload(_PartFile):
    """A snapshot that is being fetched from the leader, piece by piece."""

    def take(self, position: int, piece: bytes | memoryview) -> None:
        """Append the piece at `position`, which must be where the last one ended."""
        if position != self.size:
            raise CorruptRecord(
                f"a piece of snapshot {file_name(self.id)} begins at {position}, not {self.size}"
            )
        self._append(piece)

    def check(self, keys: DataKeys) -> Snapshot:
        """The contents, all pieces together; `CorruptRecord` if they are no snapshot."""
        self._complete()
        return read_snapshot(self._directory, self.id, keys, part=True)


def read_piece(
    directory: str, id_: OffsetAndEpoch, position: int, max_bytes: int, keys: DataKeys
) -> tuple[int, bytes] | None:
    """The file's size and the bytes from `position` on, as they are when they are not encrypted;
    None when there is no such snapshot.
    """
    path = os.path.join(directory, file_name(id_))
    try:
        fd = _opening(path, os.O_RDONLY)
    except StorageError:
        if os.path.exists(path):
            raise
        return None
    try:
        most = max(0, min(max_bytes, PIECE_BYTES_MAX))
        return _content(fd, path, id_, keys, position, most)
    except OSError as e:
        raise StorageError(f"cannot read {path}: {e}") from e
    finally:
        os.close(fd)


def _opening(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise StorageError(f"cannot open {path}: {e}") from e
