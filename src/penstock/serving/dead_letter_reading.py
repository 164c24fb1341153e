"""The records of dead letters, read from the log of their partition.

They were acquired, so they are committed; but retention or compaction may have removed them since,
and a new leader may not know yet that they are committed. The log is read and decoded by a worker.

Limits: READ_BYTES_MAX at a time, unless one batch is larger; and no more than the caller asks for,
but for the records of one read. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.log.slice import LogSlice
from penstock.partitions.partition import Partition
from penstock.serving.dead_letter_topics import NotWritable
from penstock.serving.share_batches import batches_in
from penstock.share.dead_letter_records import offsets_of
from penstock.share.values import DeadLetter
from penstock.wire.records import Record, read_records

log = logging.getLogger("penstock.serving")

READ_BYTES_MAX: Final = 1024 * 1024


class FoundRecords(NamedTuple):
    letters: list[DeadLetter]
    """Those that were looked for."""
    found: dict[int, Record]
    """By offset; one that is not there has gone, or is damaged."""


async def records_of(
    partition: Partition, letters: list[DeadLetter], worker: ThreadPoolExecutor, bytes_max: int
) -> FoundRecords:
    """The records of the first of these dead letters, until they have about so many bytes."""
    loop = asyncio.get_running_loop()
    offsets = [offset for offset, _ in offsets_of(letters)]
    found: dict[int, Record] = {}
    size = covered = 0
    for number, offset in enumerate(offsets):
        if offset < covered:
            continue
        if size >= bytes_max:
            return FoundRecords(_first(letters, number), found)
        part = _slice(partition, offset)
        covered = offset + 1
        if part is None:
            continue
        try:
            records, end = await loop.run_in_executor(worker, _records_in, part, offsets)
        except CorruptRecord as damage:
            log.error("the record of a dead letter is damaged: %s", damage)
            continue
        covered = max(covered, end)
        found |= records
        size += sum(len(r.key or b"") + len(r.value or b"") for r in records.values())
    return FoundRecords(letters, found)


def _slice(partition: Partition, offset: int) -> LogSlice | None:
    """The log from this offset on; None if it has gone."""
    if not partition.log.log_start_offset <= offset < partition.log.log_end_offset:
        return None
    end = partition.high_watermark
    if offset >= end:
        raise NotWritable("not committed", "the new leader does not know yet what is committed")
    return partition.log.read(offset, READ_BYTES_MAX, up_to_offset=end)


def _records_in(part: LogSlice, offsets: list[int]) -> tuple[dict[int, Record], int]:
    """In the worker: the records of a slice at these ascending offsets, and where it ends."""
    data, found = memoryview(part.read()), dict[int, Record]()
    batches, start = batches_in(data), 0
    for (first, last), end in zip(batches.offsets, batches.ends, strict=True):
        wanted = frozenset(offsets[bisect_left(offsets, first) : bisect_right(offsets, last)])
        if wanted:
            records = read_records(data[start:end])
            found |= {record.offset: record for record in records if record.offset in wanted}
        start = end
    return found, part.end_offset


def _first(letters: list[DeadLetter], records: int) -> list[DeadLetter]:
    """The dead letters of so many records."""
    first = []
    for letter in letters:
        if records <= 0:
            break
        last = min(letter.last_offset, letter.first_offset + records - 1)
        first.append(letter._replace(last_offset=last))
        records -= last - letter.first_offset + 1
    return first
