"""Batches that have their offsets but are not written yet: the appends of one loop turn.

`add` is all or nothing: a call that is refused, or that turns out to be a duplicate, leaves no
trace here or in the producers' state. Payloads are not copied: a batch becomes its patched first
16 bytes (base offset, length, leader epoch, none of them under the CRC) and a view of the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.base.ids import NO_TIMESTAMP
from penstock.log.producer_snapshot import BatchMetadata
from penstock.log.producer_state import AppendOrigin, ProducerStateManager
from penstock.log.segment import StagedBatch
from penstock.log.verification import VerificationGuard
from penstock.wire.records import LOG_OVERHEAD, TIMESTAMP_TYPE_FLAG, BatchHeader, check_batches

_PREFIX: Final = Struct(">qii")
_PREFIX_SIZE: Final = _PREFIX.size
_COPY_BYTES_MAX: Final = 2_048  # below this a copy of `bytes` costs less than a view of them
_new_tuple: Final = tuple.__new__  # cheaper than a named tuple's own constructor


class Batch(NamedTuple):
    """One checked batch as it was received; `data` is exactly `header.size` bytes long."""

    header: BatchHeader
    data: memoryview | bytes


class AppendInfo(NamedTuple):
    """What became of an append: its offsets, or those of the original if it was a duplicate."""

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool
    max_timestamp: int


class StagedAppends:
    """What the next write of a log will write: two buffers and the index data of each batch."""

    __slots__ = ("_producers", "batches", "buffers", "end_offset", "extra", "max_timestamp", "size")

    def __init__(self, producers: ProducerStateManager, end_offset: int, extra: int = 0) -> None:
        """`extra`: by how much longer each batch will be in the file."""
        self._producers = producers
        self.extra = extra
        self.batches: list[StagedBatch] = []
        self.buffers: list[bytes | memoryview] = []
        self.size = 0
        self.end_offset = end_offset
        self.max_timestamp = NO_TIMESTAMP

    def add(
        self,
        batches: list[Batch],
        leader_epoch: int,
        origin: AppendOrigin,
        log_start_offset: int,
        bytes_max: int,
        guard: VerificationGuard | None,
    ) -> AppendInfo:
        """Judge `batches` and give them the next offsets; no more than `bytes_max` in one call."""
        first = offset = self.end_offset
        staged, buffers = self.batches, self.buffers
        count, mark = len(staged), None
        total, max_timestamp, append_time = 0, NO_TIMESTAMP, NO_TIMESTAMP
        try:
            for header, data in batches:
                if header.producer_id >= 0:
                    mark = mark or self._producers.mark()
                    original = self._producers.stage(header, data, offset, origin, guard)
                    if original is not None:
                        self._take_back(count, mark)
                        return _duplicate(original, log_start_offset)
                length, timestamp = header.length, header.max_timestamp
                size = length + LOG_OVERHEAD + self.extra
                rest = data if size < _COPY_BYTES_MAX else memoryview(data)
                buffers.append(_PREFIX.pack(offset, length, leader_epoch))
                buffers.append(rest[_PREFIX_SIZE:])
                offset += header.last_offset_delta
                staged.append((offset, size, timestamp))
                offset += 1
                total += size
                if timestamp > max_timestamp:
                    max_timestamp = timestamp
                if header.attributes & TIMESTAMP_TYPE_FLAG:
                    append_time = timestamp
            if total > bytes_max:
                raise ApiError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{total} bytes in one append are more than a segment holds "
                    f"(segment.bytes={bytes_max})",
                )
        except (ApiError, CorruptRecord):
            self._take_back(count, mark)
            raise
        self.end_offset = offset
        self.size += total
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        return _new_tuple(
            AppendInfo, (first, offset - 1, append_time, log_start_offset, False, max_timestamp)
        )

    def _take_back(self, count: int, mark: tuple[int, int, int] | None) -> None:
        """Drop the batches of the current call, which begin at `count`."""
        del self.batches[count:]
        del self.buffers[2 * count :]
        if mark is not None:
            self._producers.rollback(mark)

    def add_replicated(self, header: BatchHeader, data: memoryview) -> None:
        """Take a batch of the leader as it is, offsets and all."""
        if header.producer_id >= 0:
            self._producers.stage(header, data, header.base_offset, AppendOrigin.REPLICATION)
        self.buffers += (data[:_PREFIX_SIZE], data[_PREFIX_SIZE:])
        size = header.size + self.extra
        self.batches.append((header.last_offset, size, header.max_timestamp))
        self.size += size
        self.end_offset = header.last_offset + 1
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def clear(self, end_offset: int) -> None:
        """Start again at the end of the log."""
        self.batches.clear()
        self.buffers.clear()
        self.size = 0
        self.end_offset = end_offset
        self.max_timestamp = NO_TIMESTAMP


def _duplicate(original: BatchMetadata, log_start_offset: int) -> AppendInfo:
    first, last, timestamp = original.first_offset, original.last_offset, original.timestamp
    return AppendInfo(first, last, timestamp, log_start_offset, True, timestamp)


def check_replicated(
    data: memoryview, end: int, leader_epoch: int | None, name: str
) -> list[tuple[int, BatchHeader]]:
    """The batches that a leader of this epoch sent, with their positions: each as it should be,
    and in order behind the log's end.
    """
    batches = check_batches(data)
    for _, header in batches:
        if header.base_offset < end:
            raise CorruptRecord(
                f"{name}: a batch at offset {header.base_offset} follows offset {end - 1}"
            )
        if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
            raise CorruptRecord(
                f"{name}: a leader of epoch {leader_epoch} sent offset "
                f"{header.base_offset} of epoch {header.partition_leader_epoch}"
            )
        end = header.last_offset + 1
    return batches
