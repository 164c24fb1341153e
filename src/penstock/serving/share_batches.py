"""Where batches lie in what was read of a log, and which belong to aborted transactions.

Headers alone are looked at; of control batches the one record, which says what they end. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_PRODUCER_ID
from penstock.log.index import AbortedTxn
from penstock.share.partition import Acquired
from penstock.wire.records import (
    LOG_OVERHEAD,
    ControlType,
    control_type,
    parse_header,
    read_records,
)

_BOUNDS: Final = Struct(">qi11xi")  # base offset, length, last offset delta


class Batches(NamedTuple):
    """The batches of a read: their offsets, and the bytes where they end."""

    offsets: list[tuple[int, int]]
    """First and last offset of each."""
    ends: list[int]


def batches_in(data: bytes | memoryview) -> Batches:
    """`data` are whole batches whose CRCs were checked."""
    offsets: list[tuple[int, int]] = []
    ends: list[int] = []
    position, end, unpack = 0, len(data), _BOUNDS.unpack_from
    while position < end:
        base, length, delta = unpack(data, position)
        position += length + LOG_OVERHEAD
        offsets.append((base, base + delta))
        ends.append(position)
    return Batches(offsets, ends)


def covering(
    data: bytes | memoryview, batches: Batches, acquired: Sequence[Acquired]
) -> bytes | memoryview:
    """The batches from the first acquired record to the last."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    start = stop = 0
    for (base, end_offset), end in zip(batches.offsets, batches.ends, strict=True):
        if end_offset < first:
            start = end
        if base > last:
            break
        stop = end
    return data if stop - start == len(data) else memoryview(data)[start:stop]


def aborted_ranges(
    data: bytes | memoryview, batches: Batches, aborted: Sequence[AbortedTxn]
) -> list[tuple[int, int]]:
    """First and last offset of the batches that belong to one of the `aborted` transactions."""
    begins = sorted((txn.first_offset, txn.producer_id) for txn in aborted)
    ongoing: set[int] = set()
    found: list[tuple[int, int]] = []
    view, start, begun = memoryview(data), 0, 0
    for bounds, end in zip(batches.offsets, batches.ends, strict=True):
        header = parse_header(view, start)
        batch, start = view[start:end], end
        if header.producer_id == NO_PRODUCER_ID:
            continue
        while begun < len(begins) and begins[begun][0] <= bounds[1]:
            ongoing.add(begins[begun][1])
            begun += 1
        if header.is_control and _ends_aborted(batch):
            ongoing.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in ongoing:
            found.append(bounds)
    return found


def _ends_aborted(batch: memoryview) -> bool:
    try:
        records = read_records(batch)
        return bool(records) and control_type(records[0]) is ControlType.ABORT
    except CorruptRecord:
        return False
