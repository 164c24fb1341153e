"""What a follower that catches up will fetch next, read while it writes what it has received.

A session's partitions take turns, so the next slice is known when a response is sent: that of the
first partition in line, after what it was just given. It is read in a worker thread and kept until
the next request. If that asks for anything else, it is dropped.

Invariant: what is served is the slice that the request found (same file, place and size) as it was
under the same leader epoch, in which a leader's log only grows. Memory: one answer for each
follower. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeAlias

from penstock.base.errors import CorruptRecord, PenstockError, StorageError
from penstock.base.results import Records
from penstock.log.slice import LogSlice
from penstock.serving.read_plan import FOLLOWER_ANSWER_BYTES_MAX, PartitionRead
from penstock.serving.read_session import FetchPartition, FetchSession

Found: TypeAlias = "Records | CorruptRecord | StorageError"
"""The records of a slice, or why they cannot be served."""


class NextRead(NamedTuple):
    """The slice that the follower will probably fetch next."""

    wanted: FetchPartition
    leader_epoch: int
    slice: LogSlice


class ReadAhead(NamedTuple):
    next_read: NextRead
    work: asyncio.Future[Found]

    def takes(self, parts: list[PartitionRead]) -> bool:
        """Whether it is exactly what the request found; if so, it replaces the slice to read."""
        found = [part for part in parts if part.slice is not None]
        if len(found) != 1:
            return False
        [part] = found
        wanted, leader_epoch, ours = self.next_read
        theirs, partition = part.slice, part.partition
        if (
            part.wanted is not wanted
            or partition is None
            or partition.leader_epoch != leader_epoch
            or theirs is None
            or theirs.file is not ours.file
            or (theirs.position, theirs.size) != (ours.position, ours.size)
        ):
            return False
        part.slice = ours
        return True


def next_read(session: FetchSession, parts: list[PartitionRead]) -> NextRead | None:
    """The slice that the session's next request will find first, after this response."""
    wanted = next(iter(session.dirty), None)
    if wanted is None or wanted.partition is None:
        return None
    offset = wanted.fetch_offset
    for part in parts:
        if part.wanted is wanted and part.slice is not None:
            offset = part.slice.end_offset
    partition = wanted.partition
    most = min(wanted.max_bytes, FOLLOWER_ANSWER_BYTES_MAX)
    try:
        found = partition.log.read(offset, most, up_to_offset=partition.log.log_end_offset)
    except PenstockError:
        return None  # the request will get the error
    return None if found is None else NextRead(wanted, partition.leader_epoch, found)
