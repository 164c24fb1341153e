"""The roles of a replica, and the table of transitions.

What must survive a restart (epoch, leader, vote) is not here but in `QuorumState`; a role is
created on every transition and holds only timers and counts, so nothing of an older one remains.

An observer, a replica that is not in the voter set, uses `Unattached` and `Follower` only: its
election timers never come due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.raft.types import NEVER_MS, OffsetAndEpoch, ReplicaKey
from penstock.wire.schema import Message


@dataclass(slots=True, eq=False)
class Unattached:
    """In an epoch whose leader is unknown or gone; looks for one."""

    election_ms: int
    fetch_ms: int
    backoff_ms: int

    def next_ms(self) -> int:
        return min(self.election_ms, self.fetch_ms)


@dataclass(slots=True, eq=False)
class Election:
    """A round of votes. `granted` and `rejected` are sets whose order is that of the answers."""

    deadline_ms: int
    granted: dict[ReplicaKey, None]
    rejected: dict[ReplicaKey, None] = field(default_factory=dict)
    failed: dict[ReplicaKey, None] = field(default_factory=dict)
    """The voters that could not be reached the last time."""
    ask_ms: dict[ReplicaKey, int] = field(default_factory=dict)
    """When to ask a voter, again where an answer was lost."""

    def next_ms(self) -> int:
        return min([self.deadline_ms, *self.ask_ms.values()])


@dataclass(slots=True, eq=False)
class Prospective(Election):
    """Asks whether it would be elected (pre-vote), without a new epoch."""

    leader_lost: bool = False


@dataclass(slots=True, eq=False)
class Candidate(Election):
    """Asks for votes in an epoch of its own."""


@dataclass(slots=True, eq=False)
class SnapshotFetch:
    id: OffsetAndEpoch
    position: int = 0
    loading: bool = False


@dataclass(slots=True, eq=False)
class Follower:
    leader_id: int
    timeout_ms: int
    """When the leader has been silent for too long."""
    fetch_ms: int
    """When to fetch; never while a fetch is in progress."""
    election_ms: int = NEVER_MS
    """When to stand for election because the leader is known to be gone."""
    leader_lost: bool = False
    heard: bool = False
    """The leader has answered a fetch."""
    leader_high_watermark: int = 0
    """As the leader last reported it; up to the flushed end it is committed here, too."""
    caught_up: bool = False
    join_ms: int = NEVER_MS
    """When to check whether to ask to become a voter, or to change this voter's endpoints."""
    snapshot: SnapshotFetch | None = None

    def next_ms(self) -> int:
        return min(self.timeout_ms, self.fetch_ms, self.election_ms, self.join_ms)


@dataclass(slots=True, eq=False)
class Progress:
    """What a leader knows of another replica."""

    end_offset: int = -1
    """Where its flushed log ends, as its last fetch in this epoch said; -1: not known."""
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_fetch: int = -1
    heard_ms: int = 0
    """When it last sent a fetch, or when it was added."""
    begin_ms: int = 0
    """When to announce this epoch to it."""


@dataclass(slots=True, eq=False)
class PendingChange:
    """A change of the voter set whose request waits for an answer."""

    token: object
    answer: Callable[[ErrorCode], Message]
    offset: int
    """Of its Voters record."""
    deadline_ms: int


@dataclass(slots=True, eq=False)
class Leader:
    start_offset: int
    """Of the epoch's first record; nothing is committed before it is."""
    replicas: dict[ReplicaKey, Progress]
    pending: PendingChange | None = None
    next_check_ms: int = NEVER_MS

    def next_ms(self) -> int:
        pending = NEVER_MS if self.pending is None else self.pending.deadline_ms
        return min(self.next_check_ms, pending)


@dataclass(slots=True, eq=False)
class Resigned:
    """Led this epoch and gave it up: it cannot vote or follow in it any more."""

    election_ms: int
    successors: list[ReplicaKey]
    """By the ends of their logs, the longest first."""
    tell_ms: dict[ReplicaKey, int]
    """The voters that still have to be notified, and when."""

    def next_ms(self) -> int:
        return min([self.election_ms, *self.tell_ms.values()])


Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned

TRANSITIONS: Final[dict[type, frozenset[type]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Unattached, Prospective, Candidate, Follower}),
    Candidate: frozenset({Unattached, Prospective, Follower, Leader}),
    Follower: frozenset({Unattached, Prospective, Follower}),
    Leader: frozenset({Unattached, Follower, Resigned}),
    Resigned: frozenset({Unattached, Prospective, Follower}),
}
"""From each role to those that may follow it. A leader becomes a follower only in a later epoch; a
candidate begins again with a pre-vote, so each new epoch has been asked for first.
"""
