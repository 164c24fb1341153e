"""One member of a consumer group: what it says about itself, and how far it has got.

Both parts are immutable and compared by value: a record is written exactly when one of them
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.coordinator.consumer.assignors import member_order
from penstock.coordinator.consumer.partitions import Partition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member that went away for a short time: its place is kept until its session ends."""


class MemberState(IntEnum):
    """Kafka's numbers, as the records carry them; the meanings stand in `reconcile`."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicPart(NamedTuple):
    """What a member that speaks the classic protocol has sent in its JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Profile(NamedTuple):
    """What a member says about itself (ConsumerGroupMemberMetadata)."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    topic_regex: str = ""
    """Empty if the member subscribes by names only."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicPart | None = None


class Progress(NamedTuple):
    """How far a member has followed the group (ConsumerGroupCurrentMemberAssignment)."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    """The epoch before the last change of it, which a member repeats whose answer was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Partition, int] = {}
    """Partitions the member may consume, with the epoch in which it was given each."""
    revoking: Mapping[Partition, int] = {}
    """Partitions the member must give up before it comes to the next epoch."""


class Member:
    """A member; it has no behaviour of its own."""

    __slots__ = ("member_id", "profile", "progress")

    def __init__(self, member_id: str, profile: Profile, progress: Progress) -> None:
        self.member_id = member_id
        self.profile = profile
        self.progress = progress

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def is_classic(self) -> bool:
        return self.profile.classic is not None

    @property
    def order(self) -> tuple[int, str]:
        return member_order(self.member_id, self.profile.instance_id)
