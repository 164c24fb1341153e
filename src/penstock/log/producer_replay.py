"""Bring producer state up to an offset by reading the batches above its snapshot."""

from __future__ import annotations

from penstock.log.batch_search import BatchPosition
from penstock.log.log_segments import LogSegments
from penstock.log.producer_state import AppendOrigin, ProducerStateManager
from penstock.log.segment import LogSegment
from penstock.wire.records import CONTROL_FLAG


def replay_producers(
    producers: ProducerStateManager, segments: LogSegments, to_offset: int
) -> None:
    """Take all batches from `producers.end_offset` to `to_offset` into account.

    The transaction indexes are left alone: they are written when a marker is appended or recovered.
    """
    start = producers.end_offset
    if start < to_offset:
        for segment in segments.from_offset(start):
            if segment.base_offset >= to_offset:
                break
            _replay_segment(producers, segment, start, to_offset)
    producers.end_offset = to_offset


def _replay_segment(
    producers: ProducerStateManager, segment: LogSegment, start: int, to_offset: int
) -> None:
    found = segment.find(start)
    if found is None:
        return
    position = found.position
    for header in segment.headers(position):
        if header.base_offset >= to_offset:
            return
        if header.producer_id >= 0:
            data = b""
            if header.attributes & CONTROL_FLAG:
                place = BatchPosition(position, header.size, header.base_offset, header.last_offset)
                data = segment.read_batch(place)
            producers.stage(header, data, header.base_offset, AppendOrigin.REPLICATION)
            for txn in producers.commit(header.last_offset + 1):
                producers.complete(txn)
        if header.last_offset + 1 >= to_offset:
            return  # what follows is not asked for, and after a crash may be the half of a batch
        position += header.size
