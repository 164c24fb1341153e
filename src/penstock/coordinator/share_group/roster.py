"""The state of a share group that its records carry: members, the target, the epochs, the stages.

Memory only: no records, timers or answers come from here. A partition may lie with many members.

Invariants (`invariants` checks them): a target belongs to a member; no epoch of a member or of the
target is above the group's; no partition is initialised and being deleted at the same time.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import invariant
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.share_group.states import StatePartitions

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STABLE = 0
"""The one state that a member's record can have: nothing is taken back step by step."""


class Profile(NamedTuple):
    """What a member says about itself (ShareGroupMemberMetadata)."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""


class Progress(NamedTuple):
    """How far a member has followed the group (ShareGroupCurrentMemberAssignment)."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    """The epoch before the last change of it, which a member repeats whose answer was lost."""
    assigned: frozenset[Partition] = frozenset()


class Member:
    """A member; it has no behaviour of its own."""

    __slots__ = ("member_id", "profile", "progress")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.profile = Profile()
        self.progress = Progress()


class Roster:
    __slots__ = (
        "assignment_epoch",
        "assignment_ms",
        "epoch",
        "members",
        "members_max",
        "metadata_hash",
        "states",
        "target",
    )

    def __init__(self) -> None:
        self.epoch = 0
        """0 until a member comes."""
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_ms = 0
        self.members: dict[str, Member] = {}
        self.members_max = 0
        """The most members at any time, which decides the order of a description."""
        self.target: dict[str, frozenset[Partition]] = {}
        self.states = StatePartitions()

    def member(self, member_id: str) -> Member:
        """The member of this id, which is made if there is none."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
            self.members_max = max(self.members_max, len(self.members))
        return member

    def remove(self, member_id: str) -> None:
        self.members.pop(member_id, None)
        self.target.pop(member_id, None)

    def topic_names(self) -> set[str]:
        """What the members subscribe to, whether it exists or not."""
        return {name for member in self.members.values() for name in member.profile.topic_names}

    def invariants(self) -> None:
        """Raise InvariantBroken if the parts contradict each other."""
        for member_id, member in self.members.items():
            invariant(member.progress.epoch <= self.epoch, f"{member_id} is ahead of its group")
        invariant(set(self.target) <= set(self.members), "a target for a member that is not there")
        invariant(self.assignment_epoch <= self.epoch, "the target is ahead of its group")
        doomed = self.states.deleting.keys() & self.states.initialized.keys()
        invariant(not doomed, "a topic is initialised and being deleted")
