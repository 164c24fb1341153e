"""What must hold at every step, seen from outside all replicas.

`committed` is the one history: the first to commit an offset writes it, everybody else must find
the same there.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from penstock.raft.types import OffsetAndEpoch, ReplicaKey
from sim.raft.disk import Disk, StoredBatch

if TYPE_CHECKING:
    from penstock.raft.quorum import Quorum
    from sim.raft.replica import SimReplica


class Violation(AssertionError):
    """A rule of the quorum is broken."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


class Checker:
    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.epochs: dict[ReplicaKey, int] = {}
        self.committed: dict[int, StoredBatch] = {}
        """By first offset."""
        self.committed_end = 0
        self.lost: list[tuple[ReplicaKey, Disk]] = []
        """Replicas that lost their disk; what they had told a leader still counts for it."""
        self.digests: dict[int, bytes] = {0: b""}
        """By end offset: of everything committed below."""

    def became_leader(self, key: ReplicaKey, epoch: int) -> None:
        other = self.leaders.setdefault(epoch, key)
        require(other == key, f"{other} and {key} both lead epoch {epoch}")

    def after_event(self, replica: SimReplica) -> None:
        quorum = replica.quorum
        assert quorum is not None
        key = replica.key
        before = self.epochs.get(key, 0)
        require(quorum.epoch >= before, f"{key} went from epoch {before} to {quorum.epoch}")
        self.epochs[key] = quorum.epoch
        require(
            quorum.high_watermark >= replica.high_watermark,
            f"the high watermark of {key} went from {replica.high_watermark} to "
            f"{quorum.high_watermark}",
        )
        require(
            quorum.high_watermark <= replica.disk.flushed,
            f"{key} commits {quorum.high_watermark}, beyond its flushed {replica.disk.flushed}",
        )
        require(
            quorum.next_deadline_ms > replica.now_ms,
            f"{key} ({quorum.role}) would be ticked again at once",
        )
        mark = (replica.disk.end, replica.disk.cuts)
        if replica.checked != mark:
            replica.checked = mark
            self._mirror(replica, quorum)

    def _mirror(self, replica: SimReplica, quorum: Quorum) -> None:
        """The core knows its log: where it ends, who votes, and of one open change at most."""
        key, end, voters = replica.key, replica.disk.end, replica.disk.voters()
        require(quorum.log_end_offset == end, f"{key} thinks that {end} is {quorum.log_end_offset}")
        require(
            voters is None or quorum.voters == voters,
            f"{key} goes by {quorum.voters}, its log says {voters}",
        )
        if quorum.is_leader:
            pending = [o for o in replica.voter_record_offsets() if o >= self.committed_end]
            require(len(pending) <= 1, f"{key} has voter changes under way at {pending}")

    def commits(self, replica: SimReplica, high_watermark: int, replicas: list[SimReplica]) -> None:
        """`replica` takes everything from its old high watermark to the new one as committed."""
        last = None
        for batch in replica.disk.batches:
            if batch.last < replica.high_watermark or batch.first >= high_watermark:
                continue
            known = self.committed.get(batch.first)
            if known is not None:
                require(
                    known == batch,
                    f"{replica.key} commits another batch at {batch.first}: epoch {batch.epoch}, "
                    f"not {known.epoch}",
                )
                continue
            require(
                batch.first == self.committed_end,
                f"{replica.key} commits {batch.first} after {self.committed_end}",
            )
            self.committed[batch.first] = batch
            before = self.digests[self.committed_end]
            self.committed_end = batch.last + 1
            self.digests[self.committed_end] = hashlib.sha256(before + batch.data).digest()
            self._majority(replica, batch, replicas)
            last = batch
        assert replica.quorum is not None
        require(
            last is None or last.epoch == replica.quorum.epoch,
            f"{replica.key} commits up to {high_watermark}, of an epoch older than its own",
        )

    def _majority(self, leader: SimReplica, batch: StoredBatch, replicas: list[SimReplica]) -> None:
        """Whoever commits first leads, and a majority of its voters has flushed it."""
        quorum = leader.quorum
        assert quorum is not None
        leads = self.leaders.get(quorum.epoch) == leader.key
        require(leads, f"{leader.key} commits {batch.first} first, but does not lead")
        holders = [r.key for r in replicas if r.disk.holds(batch)]
        holders += [key for key, disk in self.lost if disk.holds(batch)]
        voters = quorum.voters
        have = [key for key in voters.keys if key in holders]
        require(
            len(have) >= voters.majority,
            f"{leader.key} commits {batch.first}..{batch.last} with {have} of {voters}",
        )

    def truncated(self, replica: SimReplica, gone: list[StoredBatch]) -> None:
        for batch in gone:
            require(
                self.committed.get(batch.first) != batch,
                f"{replica.key} truncates the committed batch at {batch.first}",
            )

    def installed(self, replica: SimReplica, snapshot: OffsetAndEpoch, digest: bytes) -> None:
        require(
            self.digests.get(snapshot.offset) == digest,
            f"{replica.key} installs a snapshot {snapshot} of something else",
        )
