"""What a node finds on disk of the metadata log when it starts."""

from __future__ import annotations

from typing import NamedTuple

from penstock.raft.control_records import read_control
from penstock.raft.types import NO_EPOCH, OffsetAndEpoch
from penstock.raft.voters import VoterSet
from penstock.wire.records import parse_header


class StoredLog(NamedTuple):
    start: OffsetAndEpoch = OffsetAndEpoch(0, NO_EPOCH)
    """Where the log begins: (0, -1), or the id of the snapshot that it continues."""
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, its first offset), oldest first."""
    snapshot: OffsetAndEpoch | None = None
    """The latest one."""
    voter_sets: tuple[tuple[int, VoterSet], ...] = ()
    """(offset, the voter set that the record there says), oldest first."""
    versions: tuple[tuple[int, int], ...] = ()
    """(offset, kraft.version), likewise."""


class LogScan:
    """Collects the quorum's control records while the driver replays snapshot and log.

    First what the latest snapshot has, which holds at the snapshot's last offset, then the batches
    of the log from the snapshot's end on, or from the log's start when there is no snapshot.
    """

    def __init__(self) -> None:
        self.voter_sets: list[tuple[int, VoterSet]] = []
        self.versions: list[tuple[int, int]] = []

    def log_batch(self, batch: bytes | memoryview) -> None:
        for offset, value in read_control(batch, parse_header(batch)):
            self.add(offset, value)

    def add(self, offset: int, value: int | VoterSet) -> None:
        """A control record: the kraft.version or the voter set from `offset` on."""
        if isinstance(value, VoterSet):
            self.voter_sets.append((offset, value))
        else:
            self.versions.append((offset, value))
