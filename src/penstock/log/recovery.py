"""Check a segment batch by batch after an unclean stop.

The check begins at the recovery point, or at the beginning of the segment if that point cannot be
found by the indexes. Every CRC (of what is encrypted: every tag) is checked, indexes, leader epochs
and producer state are rebuilt. A bad batch at or above the recovery point is the torn end of an
unfinished write: it and all behind it are cut off. A bad batch below the recovery point is damage
to data that was durable: it is reported and stays where it is, reads of it are refused, nothing is
cut. A segment whose key is not there never comes here: its log is not opened
(`segment_keys`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.base.errors import CorruptRecord
from penstock.log.epoch_cache import LeaderEpochFileCache
from penstock.log.index import AbortedTxn
from penstock.log.limits import RECOVERY_CHUNK_BYTES, RELATIVE_OFFSET_MAX
from penstock.log.producer_state import AppendOrigin, ProducerStateManager
from penstock.log.sealing import SEALED_MAGIC
from penstock.log.segment import LogSegment
from penstock.wire.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_batch, parse_header

logger = logging.getLogger("penstock.log")


@dataclass(slots=True)
class SegmentRecovery:
    """One segment's check; `next_offset` and what was found are the result."""

    segment: LogSegment
    producers: ProducerStateManager
    epochs: LeaderEpochFileCache
    recovery_point: int
    index_interval: int
    limit: int
    """Where the next segment begins: what lies at or above it here was cut off before that one was
    begun, by a truncation that did not reach the disk.
    """
    next_offset: int = field(init=False)
    cut_bytes: int = 0
    broken: str | None = None
    """Set when flushed data is so damaged that what follows in this segment cannot be found."""

    position: int = 0
    """Where the check begins: what lies before it is below the recovery point."""

    def __post_init__(self) -> None:
        self.next_offset = self.segment.base_offset
        if self.recovery_point <= self.segment.base_offset:
            return
        try:
            self.position = self.segment.rewind_to(self.recovery_point)
            self.next_offset = self.recovery_point
        except CorruptRecord as e:
            logger.warning("checking a segment from its beginning: %s", e)

    def run(self) -> None:
        segment, position = self.segment, self.position
        # Once it is rebuilt, the recovery point alone says that it is whole: see `begin_rebuild`.
        rebuilt = not position and self.recovery_point > segment.base_offset
        if not position:
            segment.reset_indexes(transactions=not rebuilt)
        if rebuilt:
            segment.txn_index.begin_rebuild()
        for data, header, why in self._batches(position):
            if header is None or not self._plausible(header):
                self._stop(position, why or "its offset or epoch does not follow those before")
                break
            if why is not None:
                if self.next_offset >= self.recovery_point:
                    self._stop(position, why)
                    break
                logger.error("damaged batch in %s at %d: %s", segment.file.path, position, why)
            else:
                self._take(header, data)
            segment.index_batch(header, position, self.index_interval)
            self.next_offset = header.last_offset + 1
            position += header.size
        if rebuilt:
            self._end_rebuild()

    def _end_rebuild(self) -> None:
        try:
            self.segment.txn_index.end_rebuild()
        except OSError as e:
            # The entries are in memory, for readers; more cannot be added to the damaged file.
            self.broken = f"{self.segment.txn_index.path} cannot be rebuilt: {e}"

    def _plausible(self, header: BatchHeader) -> bool:
        # Epochs never go down: behind a write that reached the disk may lie what a truncation that
        # did not reach it had cut off.
        return (
            self.next_offset <= header.base_offset < self.limit
            and header.partition_leader_epoch >= self.epochs.latest_epoch
            and 0 <= header.last_offset_delta <= RELATIVE_OFFSET_MAX
            and header.last_offset - self.segment.base_offset <= RELATIVE_OFFSET_MAX
        )

    def _batches(
        self, position: int
    ) -> Iterator[tuple[memoryview, BatchHeader | None, str | None]]:
        """(bytes, header, what is wrong) of every batch until the chain of lengths breaks."""
        segment, chunk, start = self.segment, memoryview(b""), position
        while position < segment.size:
            at = position - start
            size = _batch_size(chunk, at)
            if at + size > len(chunk):
                start, at = position, 0
                chunk = memoryview(segment.file.pread(max(size, RECOVERY_CHUNK_BYTES), position))
                size = _batch_size(chunk, 0)
                if size > len(chunk) and position + size <= segment.size:
                    chunk = memoryview(segment.file.pread(size, position))
            data = chunk[at : at + size]
            try:
                yield *self._checked(data), None
            except CorruptRecord as e:
                yield data, _whole_header(data, segment.file.magic), str(e)
            position += size

    def _checked(self, data: memoryview) -> tuple[memoryview, BatchHeader]:
        """The plain bytes of a batch whose checksum is right, and its header as it is stored."""
        seal = self.segment.file.seal
        if seal is None:
            return data, check_batch(data)
        return memoryview(seal.open_batch(data)), parse_header(data, 0, SEALED_MAGIC)

    def _take(self, header: BatchHeader, data: memoryview) -> None:
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self.epochs.restore(header.partition_leader_epoch, header.base_offset)
        if header.producer_id < 0:
            return
        if header.last_offset < self.producers.end_offset:
            return
        self.producers.stage(header, data, header.base_offset, AppendOrigin.REPLICATION)
        for txn in self.producers.commit(header.last_offset + 1):
            if txn.aborted:
                stable = self.producers.last_stable_offset(txn)
                self.segment.txn_index.append(
                    AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable)
                )
            self.producers.complete(txn)

    def _stop(self, position: int, why: str) -> None:
        segment = self.segment
        left = segment.size - position
        if self.next_offset < self.recovery_point:
            self.broken = f"{segment.file.path} at position {position}: {why}"
            logger.error("%d flushed bytes cannot be read: %s", left, self.broken)
        else:
            logger.warning(
                "cutting %d bytes of an unfinished write from %s at position %d: %s",
                left,
                segment.file.path,
                position,
                why,
            )
            os.truncate(segment.file.path, position)
            self.cut_bytes = left
        segment.size = position


def _batch_size(chunk: memoryview, at: int) -> int:
    """The size of the batch at `at` as far as `chunk` shows it, never less than a header."""
    if at + LOG_OVERHEAD > len(chunk):
        return HEADER_SIZE
    return max(
        int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD, HEADER_SIZE
    )


def _whole_header(data: memoryview, magic: int) -> BatchHeader | None:
    """The header of a batch whose content is bad, if batches behind it can be found by it."""
    try:
        header = parse_header(data, 0, magic)
    except CorruptRecord:
        return None
    return header if header.size == len(data) else None
