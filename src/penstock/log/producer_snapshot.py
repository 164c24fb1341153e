"""Producer state on disk: `<offset>.snapshot` in Kafka's binary format (version 1).

Version (16 bits), CRC-32C of all that follows it (32 bits), number of entries (32 bits), then per
producer: id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
offset of its open transaction (-1: none).

Kafka keeps only the last batch of a producer on disk, so that after a restart it takes a repeated
older one for a gap. We add the ones before it behind the entries, where Kafka's reader does not
look: a number (32 bits), then per batch producer id, last sequence, last offset, offset delta,
timestamp, oldest first. A snapshot without them, as Kafka writes it, is read as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from penstock.log.files import write_atomically

SNAPSHOT_SUFFIX = ".snapshot"
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
SEQUENCE_MAX = 2**31 - 1

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_OLDER_BATCH = Struct(">qiqiq")


class BatchMetadata(NamedTuple):
    """What is remembered of one batch of an idempotent producer."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry(NamedTuple):
    """One producer's state; it is replaced, never changed, so that an append can be taken back."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int = NO_OFFSET
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


def first_sequence_of(last_sequence: int, offset_delta: int) -> int:
    """The sequence `offset_delta` before `last_sequence`, which may have wrapped at 2^31 - 1."""
    if last_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    first = last_sequence - offset_delta
    return first if first >= 0 else first + SEQUENCE_MAX + 1


def write_snapshot(path: str, entries: Iterable[ProducerStateEntry], *, sync: bool) -> None:
    body, older = bytearray(_COUNT.size), bytearray(_COUNT.size)
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        count += 1
        for _, *batch in entry.batches[:-1]:
            older += _OLDER_BATCH.pack(entry.producer_id, *batch)
    _COUNT.pack_into(body, 0, count)
    _COUNT.pack_into(older, 0, len(older) // _OLDER_BATCH.size)
    body += older
    write_atomically(path, _HEAD.pack(_VERSION, crc32c(body)) + bytes(body), sync=sync)


def read_snapshot(path: str) -> list[ProducerStateEntry]:
    """The producers of a snapshot; `CorruptRecord` when it is damaged."""
    with open(path, "rb") as f:
        data = f.read()
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except error as e:
        raise CorruptRecord(f"{path} is shorter than its head") from e
    body = memoryview(data)[_HEAD.size :]
    if version != _VERSION or crc32c(body) != crc:
        raise CorruptRecord(f"{path}: version {version} is not {_VERSION}, or its CRC is wrong")
    end = _COUNT.size + count * _ENTRY.size
    if count < 0 or len(body) < end:
        raise CorruptRecord(f"{path} promises {count} producers and does not hold them")
    older = _older_batches(path, body[end:])
    return [
        _entry(older.get(fields[0], []), *fields)
        for fields in _ENTRY.iter_unpack(body[_COUNT.size : end])
    ]


def _older_batches(path: str, data: memoryview) -> dict[int, list[BatchMetadata]]:
    """What we add behind Kafka's entries: producer id -> its batches before the last one."""
    found: dict[int, list[BatchMetadata]] = {}
    if not data:
        return found
    if (len(data) - _COUNT.size) % _OLDER_BATCH.size:
        raise CorruptRecord(f"{path} ends in the middle of a batch")
    for producer_id, *batch in _OLDER_BATCH.iter_unpack(data[_COUNT.size :]):
        found.setdefault(producer_id, []).append(_batch(*batch))
    return found


def _batch(
    last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
) -> BatchMetadata:
    first = first_sequence_of(last_sequence, offset_delta)
    return BatchMetadata(first, last_sequence, last_offset, offset_delta, timestamp)


def _entry(
    older: list[BatchMetadata],
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> ProducerStateEntry:
    batches = tuple(older)
    if last_offset >= 0:
        batches += (_batch(last_sequence, last_offset, offset_delta, timestamp),)
    return ProducerStateEntry(
        producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset, batches
    )


def snapshot_path(log_dir: str, offset: int) -> str:
    return f"{log_dir}/{offset:020d}{SNAPSHOT_SUFFIX}"


def list_snapshots(log_dir: str) -> list[int]:
    """The offsets of the snapshots in a directory, ascending."""
    names = [n for n in os.listdir(log_dir) if n.endswith(SNAPSHOT_SUFFIX)]
    stems = [n.removesuffix(SNAPSHOT_SUFFIX) for n in names]
    return sorted(int(s) for s in stems if s.isdecimal())
