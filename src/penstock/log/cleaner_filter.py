"""What of a batch survives compaction: the map of latest offsets and the filter that uses it.

Duty: `OffsetMap` takes the keys of the dirty section; `BatchFilter` then gives, for each batch of
the log in offset order, what replaces it.

Invariants: a record is dropped only if a later offset of its key is in the map, or it has no key,
or it belongs to an aborted transaction, or it is a tombstone whose delete horizon has passed. A
marker is dropped only when nothing of its transaction is left and its horizon has passed.
Offsets, timestamps, producer fields and compression stay; a batch that loses nothing and needs no
horizon is taken over byte by byte. Of the last batch of every active producer at least an empty
batch stays, so that sequence numbers and epochs survive.

Limits: the map holds about as many keys as its memory allows; only a single batch may exceed that,
so that every cleaning makes progress.

Pure: bytes and a time go in, bytes come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from penstock.log.cleaner_job import ProducerEnd
from penstock.log.cleaner_scan import ScannedRecords, scan_batch
from penstock.log.cleaner_transactions import CleanedTransactions
from penstock.wire.compression import compress
from penstock.wire.records import (
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    assemble,
    encode_record,
    read_records,
)

MAP_ENTRY_BYTES = 176
"""Memory of one key in the map: its dictionary slot at the worst moment of growth, digest,
offset.
"""
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class OffsetMap:
    """The latest offset of every key in the dirty section, as far as memory allows."""

    __slots__ = ("_entries_max", "latest_offset", "offsets")

    def __init__(self, memory_bytes: int) -> None:
        self._entries_max = memory_bytes // MAP_ENTRY_BYTES
        self.offsets: dict[bytes | None, int] = {}
        self.latest_offset = -1
        """Every record up to this offset is accounted for in the map."""

    def add(self, header: BatchHeader, batch: bytes) -> bool:
        """Take in a batch's keys; False, without a change, when there is no room for them."""
        _, scan = scan_batch(header, batch)
        offsets = self.offsets
        if offsets and len(offsets) + len(scan.keys) > self._entries_max:
            new = len(set(scan.keys) - offsets.keys())
            if len(offsets) + new > self._entries_max:
                return False
        base = header.base_offset
        offsets.update(zip(scan.keys, [base + delta for delta in scan.offset_deltas], strict=True))
        offsets.pop(None, None)
        return True


class Kept(NamedTuple):
    """What goes into the new segment in place of a batch."""

    data: bytes
    last_offset: int
    max_timestamp: int


class BatchFilter:
    """Applies the rules of compaction to the batches of one log, shown in offset order."""

    __slots__ = (
        "_delete_horizon_ms",
        "_map",
        "_now_ms",
        "_producers",
        "_transactions",
        "invalid_messages",
        "messages_after",
        "messages_before",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        producers: Iterable[ProducerEnd],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._producers = {p.producer_id: p for p in producers}
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms
        self.messages_before = 0
        self.messages_after = 0
        self.invalid_messages = 0

    def apply(self, header: BatchHeader, batch: bytes) -> Kept | None:
        """What stays of the batch; None: nothing."""
        self.messages_before += header.record_count
        may_drop = self._transactions.may_drop(header, batch)
        kept: Kept | None
        if header.is_control:
            kept = self._control(header, batch, may_drop)
        elif may_drop or not header.record_count:
            kept = None
        else:
            kept = self._data(header, batch)
        if kept is None and self._is_end_of_producer(header):
            return _empty(header)
        return kept

    def _is_end_of_producer(self, header: BatchHeader) -> bool:
        end = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if end is None:
            return False
        if end.last_data_offset >= 0:
            return header.last_offset == end.last_data_offset
        return header.is_control and header.producer_epoch == end.producer_epoch

    def _control(self, header: BatchHeader, batch: bytes, may_drop: bool) -> Kept | None:
        if not header.record_count:
            return None
        if may_drop and header.has_delete_horizon and header.base_timestamp <= self._now_ms:
            return None
        self.messages_after += header.record_count
        if may_drop and not header.has_delete_horizon:
            return _with_horizon(header, batch, None, self._delete_horizon_ms)
        return Kept(batch, header.last_offset, header.max_timestamp)

    def _data(self, header: BatchHeader, batch: bytes) -> Kept | None:
        if header.base_offset > self._map.latest_offset:
            self.messages_after += header.record_count
            return Kept(batch, header.last_offset, header.max_timestamp)
        body, scan = scan_batch(header, batch)
        stays = self._decide(header, scan)
        count = sum(stays)
        if not count:
            return None
        self.messages_after += count
        if not header.has_delete_horizon and any(stays[i] for i in scan.tombstones):
            return _with_horizon(header, batch, stays, self._delete_horizon_ms)
        if count == len(stays):
            return Kept(batch, header.last_offset, header.max_timestamp)
        return _without(header, body, scan, stays)

    def _decide(self, header: BatchHeader, scan: ScannedRecords) -> list[bool]:
        base, latest_of = header.base_offset, self._map.offsets.get
        stays = [
            base + delta >= latest_of(key, -1)
            for key, delta in zip(scan.keys, scan.offset_deltas, strict=True)
        ]
        for i in scan.keyless:
            stays[i] = False
        self.invalid_messages += len(scan.keyless)
        if header.has_delete_horizon and header.base_timestamp <= self._now_ms:
            for i in scan.tombstones:
                stays[i] = False
        return stays


def _without(header: BatchHeader, body: bytes, scan: ScannedRecords, stays: Sequence[bool]) -> Kept:
    """The batch with the bytes of the dropped records cut out; deltas keep their meaning."""
    bounds = scan.bounds
    left = b"".join(
        [body[a:b] for a, b, stay in zip(bounds, bounds[1:], stays, strict=False) if stay]
    )
    max_timestamp = header.max_timestamp
    if not header.log_append_time:
        max_timestamp = header.base_timestamp + max(
            (raw >> 1) ^ -(raw & 1)
            for raw, stay in zip(scan.timestamps_zigzag, stays, strict=True)
            if stay
        )
    header = header._replace(
        max_timestamp=_checked_int64(header, max_timestamp), record_count=sum(stays)
    )
    return _assembled(header, left)


def _with_horizon(
    header: BatchHeader, batch: bytes, stays: Sequence[bool] | None, horizon_ms: int
) -> Kept:
    """The batch, less what does not stay, with its delete horizon in the base timestamp
    (KIP-534).
    """
    records = read_records(batch)
    if stays is not None:
        records = [record for record, stay in zip(records, stays, strict=True) if stay]
    body = bytearray()
    for record in records:
        delta = _checked_int64(header, record.timestamp - horizon_ms)
        encode_record(body, record.offset - header.base_offset, delta, record)
    header = header._replace(
        attributes=header.attributes | DELETE_HORIZON_FLAG,
        base_timestamp=horizon_ms,
        max_timestamp=max(record.timestamp for record in records),
        record_count=len(records),
    )
    return _assembled(header, body)


def _assembled(header: BatchHeader, body: bytes | bytearray) -> Kept:
    kind = header.compression
    data = assemble(header, compress(kind, body) if kind else body)
    return Kept(data, header.last_offset, header.max_timestamp)


def offsets_only(header: BatchHeader) -> Kept:
    """A batch without records or producer that only keeps the last offset."""
    header = header._replace(
        attributes=header.attributes & TIMESTAMP_TYPE_FLAG,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    return _empty(header)


def _empty(header: BatchHeader) -> Kept:
    """A batch without records that keeps offsets, producer, epoch and sequence numbers."""
    header = header._replace(
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return Kept(assemble(header, b""), header.last_offset, header.max_timestamp)


def _checked_int64(header: BatchHeader, timestamp: int) -> int:
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise CorruptRecord(f"batch at offset {header.base_offset} has an impossible timestamp")
    return timestamp
