"""What a follower that catches up will ask for next, read while it writes what it has got.

A session's partitions take turns, so the next piece is known when an answer goes out: that of the
first partition in line, after what it was just given. It is read beside the event loop and kept
until the next request. If that asks for anything else, it is thrown away.

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
from penstock.serving.look import FOLLOWER_ANSWER_BYTES_MAX, Look
from penstock.serving.read_session import FetchPartition, FetchSession

Found: TypeAlias = "Records | CorruptRecord | StorageError"
"""The records of a slice, or why they cannot be served."""


class NextRead(NamedTuple):
    """A slice that will be asked for, if nothing unforeseen happens."""

    wanted: FetchPartition
    leader_epoch: int
    slice: LogSlice


class ReadAhead(NamedTuple):
    next_read: NextRead
    work: asyncio.Future[Found]

    def takes(self, looks: list[Look]) -> bool:
        """Whether it is all that was found; if so, it takes the place of what would be read."""
        found = [look for look in looks if look.slice is not None]
        if len(found) != 1:
            return False
        [look] = found
        wanted, leader_epoch, ours = self.next_read
        theirs, partition = look.slice, look.partition
        if (
            look.wanted is not wanted
            or partition is None
            or partition.leader_epoch != leader_epoch
            or theirs is None
            or theirs.file is not ours.file
            or (theirs.position, theirs.size) != (ours.position, ours.size)
        ):
            return False
        look.slice = ours
        return True


def next_read(session: FetchSession, looks: list[Look]) -> NextRead | None:
    """What the session's next request will find first, after these looks were answered."""
    wanted = next(iter(session.dirty), None)
    if wanted is None or wanted.partition is None:
        return None
    offset = wanted.fetch_offset
    for look in looks:
        if look.wanted is wanted and look.slice is not None:
            offset = look.slice.end_offset
    partition = wanted.partition
    most = min(wanted.max_bytes, FOLLOWER_ANSWER_BYTES_MAX)
    try:
        found = partition.log.read(offset, most, up_to_offset=partition.log.log_end_offset)
    except PenstockError:
        return None  # the request will be told
    return None if found is None else NextRead(wanted, partition.leader_epoch, found)
