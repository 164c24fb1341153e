"""Searches for batches in a segment's file, from header to header.

A search begins at a batch boundary, which the caller knows from an index. Headers are compared with
what a batch must look like, CRCs are not checked: `CorruptRecord` where no batch begins. Any thread
may search a file that stays open meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.base.errors import CorruptRecord, StorageError
from penstock.keys.provider import KeyUnavailable
from penstock.log.files import LogFile
from penstock.log.limits import SCAN_CHUNK_BYTES
from penstock.log.sealing import SEALED_MAGIC
from penstock.wire.records import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, parse_header

# What the search for an offset needs of a header: base offset, length, magic, last offset delta.
_SEARCH: Final = Struct(">qi4xb6xi")
_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD


class BatchPosition(NamedTuple):
    """Where a batch lies: its position, its size, its first and last offset."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def find_batch(file: LogFile, position: int, end: int, offset: int) -> BatchPosition | None:
    """The first batch between `position` and `end` whose last offset is at or above `offset`."""
    unpack = _SEARCH.unpack_from
    chunk, start = b"", position
    while position < end:
        at = position - start
        if at + _SEARCH.size > len(chunk):
            start, at = position, 0
            chunk = file.pread(SCAN_CHUNK_BYTES, position)
            if len(chunk) < _SEARCH.size:
                raise corrupt_at(file, position, "the file ends in the middle of a header")
        base, length, magic, delta = unpack(chunk, at)
        if magic != file.magic or length < _LENGTH_MIN:
            raise not_a_batch(file, position, magic, length)
        if base + delta >= offset:
            return BatchPosition(position, length + LOG_OVERHEAD, base, base + delta)
        position += length + LOG_OVERHEAD
    return None


def headers_in(file: LogFile, position: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the batches from the batch boundary `position` to `end`."""
    chunk, start = b"", position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            start, at = position, 0
            chunk = file.pread(SCAN_CHUNK_BYTES, position)
        try:
            header = parse_header(chunk, at, file.magic)
        except CorruptRecord as e:
            if len(chunk) - at >= HEADER_SIZE:
                _, length, magic, _ = _SEARCH.unpack_from(chunk, at)
                raise not_a_batch(file, position, magic, length) from e
            raise corrupt_at(file, position, str(e)) from e
        if position + header.size > end:
            raise corrupt_at(file, position, "the file ends in the middle of a batch")
        yield header
        position += header.length + LOG_OVERHEAD


def not_a_batch(file: LogFile, position: int, magic: int, length: int) -> StorageError:
    """The error for a header that is none, or that of an encrypted batch without its key."""
    if magic == SEALED_MAGIC and file.magic == MAGIC:
        return KeyUnavailable(
            f"{file.path} is encrypted and its key file is missing: put it back, from a copy of "
            "the data, and start the node again; nothing was changed or removed"
        )
    return corrupt_at(file, position, f"not a batch: magic {magic}, length {length}")


def corrupt_at(file: LogFile, position: int, what: str) -> CorruptRecord:
    """The error for damage found at a position of a file."""
    return CorruptRecord(f"{file.path} at position {position}: {what}")
