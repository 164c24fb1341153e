"""The state of a consumer group: members, owners of partitions, the target, the epochs.

Memory only: no records, timers or answers come from here. `owners` is derived from the members'
progress and answers the one question that keeps two members from holding one partition.

Invariants (`invariants` checks them): a partition is assigned to, or being given up by, at most one
member, which `owners` names; the targets of members do not overlap; a static id names the member
that carries it; no epoch of a member or of the target is above the group's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.errors import InvariantBroken, invariant
from penstock.coordinator.consumer.member import Member, Profile, Progress
from penstock.coordinator.consumer.partitions import Partition

FIRST_EPOCH = 1
"""The epoch of a group whose first member has not named a topic yet."""


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched when it was last looked at."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Roster:
    """The state of a group that its records carry."""

    __slots__ = (
        "assignment_epoch",
        "assignment_ms",
        "epoch",
        "has_partition_metadata",
        "members",
        "members_max",
        "metadata_hash",
        "owners",
        "regexes",
        "static_ids",
        "target",
    )

    def __init__(self) -> None:
        self.epoch = 0
        """0 until a member comes: the group does not exist."""
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_ms = 0
        self.members: dict[str, Member] = {}
        self.members_max = 0
        """The most members at any time, which decides the order of a description."""
        self.static_ids: dict[str, str] = {}
        """Member ids by instance id."""
        self.owners: dict[Partition, str] = {}
        self.target: dict[str, frozenset[Partition]] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        """A record of an older coordinator stands in the log and is taken back with the group."""

    def put(self, member: Member) -> None:
        """Add a member with all that it holds."""
        invariant(member.member_id not in self.members, f"{member.member_id} is added twice")
        self.add(member)
        self._own(member.member_id, Progress(), member.progress)
        self.set_profile(member, member.profile)

    def add(self, member: Member) -> None:
        """Add a member that holds nothing yet; the first one begins the first epoch."""
        self.members[member.member_id] = member
        self.members_max = max(self.members_max, len(self.members))
        self.epoch = max(self.epoch, FIRST_EPOCH)

    def set_profile(self, member: Member, profile: Profile) -> None:
        """The member says something else about itself, perhaps under another instance id."""
        before = member.profile.instance_id
        if before is not None and self.static_ids.get(before) == member.member_id:
            del self.static_ids[before]
        member.profile = profile
        if profile.instance_id is not None:
            self.static_ids[profile.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Forget a member, its target and what it held."""
        member = self.members.pop(member_id, None)
        self.target.pop(member_id, None)
        if member is None:
            return None
        instance_id = member.profile.instance_id
        if instance_id is not None and self.static_ids.get(instance_id) == member_id:
            del self.static_ids[instance_id]
        self._own(member_id, member.progress, Progress())
        return member

    def advance(self, member: Member, progress: Progress) -> None:
        """The member has got further."""
        before, member.progress = member.progress, progress
        self._own(member.member_id, before, progress)

    def is_free(self, partition: Partition, member_id: str) -> bool:
        """Nobody but the member itself holds the partition."""
        return self.owners.get(partition, member_id) == member_id

    def reindex(self) -> None:
        """Derive `owners` again: while a compacted log is replayed members may overlap."""
        self.owners.clear()
        for member in self.members.values():
            self._own(member.member_id, Progress(), member.progress)

    def _own(self, member_id: str, before: Progress, after: Progress) -> None:
        for partition in _held(before):
            if partition not in after.assigned and partition not in after.revoking:
                del self.owners[partition]
        for partition in _held(after):
            owner = self.owners.setdefault(partition, member_id)
            if owner != member_id:  # the sentence takes longer than the rest
                raise InvariantBroken(
                    f"partition {partition[1]} of {partition[0].hex()} is given to {member_id} "
                    f"while {owner} holds it"
                )

    def invariants(self) -> None:
        """Raise InvariantBroken if the parts contradict each other."""
        held: dict[Partition, str] = {}
        for member_id, member in self.members.items():
            for partition in _held(member.progress):
                invariant(partition not in held, f"{partition} has two owners")
                held[partition] = member_id
            invariant(member.epoch <= self.epoch, f"{member_id} is ahead of its group")
            instance_id = member.profile.instance_id
            invariant(
                instance_id is None or self.static_ids.get(instance_id) == member_id,
                f"instance id {instance_id} does not lead to {member_id}",
            )
        invariant(held == self.owners, "owners are not what the members hold")
        invariant(set(self.static_ids.values()) <= set(self.members), "a static id leads nowhere")
        invariant(set(self.target) <= set(self.members), "a target for a member that is not there")
        wanted = [p for partitions in self.target.values() for p in partitions]
        invariant(len(wanted) == len(set(wanted)), "two members shall have one partition")
        invariant(self.assignment_epoch <= self.epoch, "the target is ahead of its group")


def _held(progress: Progress) -> Iterable[Partition]:
    yield from progress.assigned
    yield from progress.revoking
