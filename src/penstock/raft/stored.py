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
    """Collects what snapshot and log say about the quorum, while the driver replays them.

    First the batches of the latest snapshot, then those of the log from the snapshot's end on, or
    from the log's start when there is none.
    """

    def __init__(self) -> None:
        self.voter_sets: list[tuple[int, VoterSet]] = []
        self.versions: list[tuple[int, int]] = []

    def snapshot_batch(self, snapshot_id: OffsetAndEpoch, batch: bytes | memoryview) -> None:
        """A snapshot's records have offsets of their own: what it says holds at its end."""
        self._take(batch, snapshot_id.offset - 1)

    def log_batch(self, batch: bytes | memoryview) -> None:
        self._take(batch, None)

    def _take(self, batch: bytes | memoryview, at: int | None) -> None:
        for offset, said in read_control(batch, parse_header(batch)):
            place = offset if at is None else at
            if isinstance(said, VoterSet):
                self.voter_sets.append((place, said))
            else:
                self.versions.append((place, said))
