"""One member of a consumer group: what it says about itself, and how far it has got.

Both parts are immutable and compared by value: a record is written exactly when one of them
changes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from penstock.coordinator import reconcile
from penstock.coordinator.consumer.assignors import member_order
from penstock.coordinator.consumer.partitions import Partition

Progress: TypeAlias = reconcile.Progress[Partition]
"""How far a member has followed the group (ConsumerGroupCurrentMemberAssignment)."""


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
