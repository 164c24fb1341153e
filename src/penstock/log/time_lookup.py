"""Offsets by time: which segment, which batch, which record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_TIMESTAMP
from penstock.log.segment import BatchPosition, LogSegment
from penstock.wire.records import BatchHeader, Record, check_batch, read_records

if TYPE_CHECKING:
    from penstock.log.log import Log


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record at or above the log start whose timestamp is at or above `timestamp`."""
    for segment in log.segments.from_offset(log.log_start_offset):
        if segment.max_timestamp < timestamp:
            continue
        start = max(segment.offset_before(timestamp), log.log_start_offset)
        found = _first_in_segment(segment, start, timestamp, log.log_start_offset)
        if found is not None:
            return found
    return None


def max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record at or above the log start that has the greatest timestamp there."""
    log_start = log.log_start_offset
    first, *others = log.segments.from_offset(log_start)
    best, timestamp = first, first.max_timestamp
    if first.base_offset < log_start:
        timestamp = _max_from(first, log_start)
    for segment in others:
        if segment.max_timestamp > timestamp:
            best, timestamp = segment, segment.max_timestamp
    if timestamp == NO_TIMESTAMP:
        return None
    start = log_start if best is first else best.max_timestamp_offset
    return _first_in_segment(best, start, timestamp, log_start)


def timestamp_at(log: Log, offset: int) -> int | None:
    """The time of the first batch that ends at or above `offset`: that of its first record, or its
    append time. Reads one header, whatever the batch's size; None where there is no such batch.
    """
    for segment in log.segments.from_offset(offset):
        place = segment.find(offset)
        if place is not None:
            header = next(segment.headers(place.position))
            return header.max_timestamp if header.log_append_time else header.base_timestamp
    return None


def _max_from(segment: LogSegment, log_start: int) -> int:
    """The greatest timestamp of a segment whose beginning was trimmed, found by its headers."""
    place = segment.find(log_start)
    if place is None:
        return NO_TIMESTAMP
    timestamp, position = NO_TIMESTAMP, place.position
    for header in segment.headers(position):
        if header.base_offset >= log_start:
            timestamp = max(timestamp, header.max_timestamp)
        else:
            # Only a part of this batch is left: its records must be looked at.
            for record in _records(segment, header, position):
                if record.offset >= log_start:
                    timestamp = max(timestamp, record.timestamp)
        position += header.size
    return timestamp


def _first_in_segment(
    segment: LogSegment, start: int, timestamp: int, log_start: int
) -> TimestampOffset | None:
    place = segment.find(start)
    if place is None:
        return None
    position = place.position
    for header in segment.headers(position):
        if header.max_timestamp >= timestamp:
            found = _first_in_batch(segment, header, position, timestamp, log_start)
            if found is not None:
                return found
        position += header.size
    return None


def _first_in_batch(
    segment: LogSegment, header: BatchHeader, position: int, timestamp: int, log_start: int
) -> TimestampOffset | None:
    for record in _records(segment, header, position):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _records(segment: LogSegment, header: BatchHeader, position: int) -> list[Record]:
    place = BatchPosition(position, header.size, header.base_offset, header.last_offset)
    data = segment.read_batch(place)
    try:
        check_batch(data)
        return read_records(data)
    except CorruptRecord as e:
        raise CorruptRecord(f"{segment.file.path} at position {position}: {e}") from e
