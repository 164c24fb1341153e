"""A replica's disk: the metadata log batch by batch, the quorum-state file, snapshots.

What is appended is lost by a crash, from some batch on, unless it was flushed.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from penstock.raft.control_records import read_control
from penstock.raft.stored import LogScan, StoredLog
from penstock.raft.types import NO_EPOCH, OffsetAndEpoch
from penstock.raft.voters import VoterSet
from penstock.wire.records import check_batch


class StoredBatch(NamedTuple):
    first: int
    last: int
    epoch: int
    data: bytes
    said: tuple[tuple[int, int | VoterSet], ...]
    """(offset, kraft.version or voter set) of its control records."""


class Disk:
    def __init__(self) -> None:
        self.state: str | None = None
        self.batches: list[StoredBatch] = []
        self.start = OffsetAndEpoch(0, NO_EPOCH)
        self.flushed = 0
        self.snapshots: dict[OffsetAndEpoch, bytes] = {}
        self.partial = bytearray()
        self.cuts = 0
        """How often the log was cut: a flush that began before is not reported."""

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else self.start.offset

    def append(self, data: bytes) -> list[StoredBatch]:
        added = []
        position = 0
        while position < len(data):
            header = check_batch(data, position)
            assert header.base_offset == self.end, (header, self.end)
            one = bytes(data[position : position + header.size])
            epoch = header.partition_leader_epoch
            said = tuple(read_control(one, header))
            batch = StoredBatch(header.base_offset, header.last_offset, epoch, one, said)
            self.batches.append(batch)
            added.append(batch)
            position += header.size
        return added

    def truncate(self, offset: int) -> list[StoredBatch]:
        kept = [b for b in self.batches if b.last < offset]
        gone = self.batches[len(kept) :]
        assert not gone or gone[0].first == offset, f"{offset} lies inside a batch"
        self.batches = kept
        self.flushed = min(self.flushed, offset)
        self.cuts += 1
        return gone

    def read(self, first: int, batches_max: int) -> bytes:
        found = [b.data for b in self.batches if b.last >= first]
        return b"".join(found[:batches_max])

    def install(self, snapshot: OffsetAndEpoch) -> None:
        self.snapshots[snapshot] = bytes(self.partial)
        self.partial = bytearray()
        self.batches = []
        self.start = snapshot
        self.flushed = snapshot.offset
        self.cuts += 1

    def trim(self, snapshot: OffsetAndEpoch) -> None:
        self.batches = [b for b in self.batches if b.first >= snapshot.offset]
        self.start = snapshot
        for older in [s for s in self.snapshots if s.offset < snapshot.offset]:
            del self.snapshots[older]

    def crash(self, rng: random.Random) -> None:
        """Some of what was not flushed is gone, in order."""
        kept = sum(b.last < self.flushed for b in self.batches)
        del self.batches[rng.randint(kept, len(self.batches)) :]
        self.flushed = self.end
        self.partial = bytearray()
        self.cuts += 1

    def holds(self, batch: StoredBatch) -> bool:
        """Whether `batch` is here to stay, in the log or in a snapshot."""
        if batch.last < self.start.offset:
            return True
        return self.flushed > batch.last and batch in self.batches

    def voters(self) -> VoterSet | None:
        """The last voter set in the log, or in the snapshot that it continues."""
        for batch in reversed(self.batches):
            for _, said in reversed(batch.said):
                if isinstance(said, VoterSet):
                    return said
        sets = self.stored().voter_sets
        return sets[-1][1] if sets else None

    def stored(self) -> StoredLog:
        scan = LogScan()
        latest = max(self.snapshots, default=None)
        if latest is not None:
            for batch in split(self.snapshots[latest]):
                for _, said in read_control(batch, check_batch(batch)):
                    scan.add(latest.offset - 1, said)
        epochs: list[tuple[int, int]] = []
        for stored in self.batches:
            if not epochs or stored.epoch > epochs[-1][0]:
                epochs.append((stored.epoch, stored.first))
            if latest is None or stored.first >= latest.offset:
                scan.log_batch(stored.data)
        return StoredLog(
            self.start,
            self.end,
            tuple(epochs),
            latest,
            tuple(scan.voter_sets),
            tuple(scan.versions),
        )


def split(data: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        header = check_batch(data, position)
        found.append(data[position : position + header.size])
        position += header.size
    return found
