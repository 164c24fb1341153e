"""The state of a streams group that its records carry: members, tasks, the target, the epochs.

Memory only: no records, timers or answers come from here. `holders` is derived from the members'
progress and answers who has a task, in whatever type, or is giving it up.

Invariants (`invariants` checks them): a task is active with at most one member; `holders` is what
the members hold; a target belongs to a member, and no two targets have a task active; no epoch of a
member or of the target is above the group's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.base.errors import invariant
from penstock.coordinator import reconcile
from penstock.coordinator.streams_group.tasks import Task, TaskType, TypedTask
from penstock.coordinator.streams_group.topology import Topology

FIRST_EPOCH = 1
"""The epoch of a group that nobody has joined yet; its target is empty."""
NOT_VALIDATED = -1
Progress: TypeAlias = reconcile.Progress[TypedTask]
"""How far a member has followed the group (StreamsGroupCurrentMemberAssignment). Only active tasks
have the epoch in which they were given, others 0.
"""


class Endpoint(NamedTuple):
    """Where a member answers interactive queries."""

    host: str
    port: int


class Profile(NamedTuple):
    """What a member says about itself (StreamsGroupMemberMetadata)."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()
    """Sorted, each key once."""


class Member:
    """A member; it has no behaviour of its own."""

    __slots__ = ("member_id", "profile", "progress")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.profile = Profile()
        self.progress: Progress = Progress()


class Roster:
    __slots__ = (
        "assignment_configs",
        "assignment_epoch",
        "assignment_ms",
        "epoch",
        "holders",
        "members",
        "members_max",
        "metadata_hash",
        "target",
        "topology",
        "validated_epoch",
    )

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_epoch = NOT_VALIDATED
        """The epoch of the topology whose topics were all there when the group's epoch began."""
        self.assignment_configs: Mapping[str, str] = {}
        """Settings of the group that the target was made by."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, Member] = {}
        self.members_max = 0
        """The most members at any time, which decides the order of a description."""
        self.holders: dict[Task, set[str]] = {}
        self.target: dict[str, frozenset[TypedTask]] = {}

    def member(self, member_id: str) -> Member:
        """The member of this id, which is made if there is none."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
            self.members_max = max(self.members_max, len(self.members))
        return member

    def remove(self, member_id: str) -> None:
        """Forget a member, its target and what it held."""
        self.target.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._hold(member_id, member.progress, Progress())

    def advance(self, member: Member, progress: Progress) -> None:
        """The member has got further."""
        before, member.progress = member.progress, progress
        self._hold(member.member_id, before, progress)

    def is_free(self, task: TypedTask, member: Member) -> bool:
        """Whether the member can be given the task now: nobody else has it active, if it is to be
        active, and no other member of its process has it in any type.
        """
        kind, subtopology, number = task
        for other_id in self.holders.get((subtopology, number), ()):
            if other_id == member.member_id:
                continue
            other = self.members[other_id]
            if other.profile.process_id == member.profile.process_id:
                return False
            if kind is TaskType.ACTIVE and _has_active(other.progress, task):
                return False
        return True

    def reindex(self) -> None:
        """Derive `holders` again: while a compacted log is replayed members may overlap."""
        self.holders.clear()
        for member in self.members.values():
            self._hold(member.member_id, Progress(), member.progress)

    def _hold(self, member_id: str, before: Progress, after: Progress) -> None:
        had, has = set(_held(before)), set(_held(after))
        for task in had - has:
            holders = self.holders.get(task, set())
            holders.discard(member_id)
            if not holders:
                self.holders.pop(task, None)
        for task in has - had:
            self.holders.setdefault(task, set()).add(member_id)

    def invariants(self) -> None:
        """Raise InvariantBroken if the parts contradict each other."""
        holders: dict[Task, set[str]] = {}
        active: set[TypedTask] = set()
        for member_id, member in self.members.items():
            progress = member.progress
            invariant(progress.epoch <= self.epoch, f"{member_id} is ahead of its group")
            for task in _held(progress):
                holders.setdefault(task, set()).add(member_id)
            for typed in {*progress.assigned, *progress.revoking}:
                invariant(typed not in active, f"{typed} is active with two members")
                if typed[0] is TaskType.ACTIVE:
                    active.add(typed)
        invariant(holders == self.holders, "holders are not what the members hold")
        invariant(set(self.target) <= set(self.members), "a target for a member that is not there")
        wanted = [t for tasks in self.target.values() for t in tasks if t[0] is TaskType.ACTIVE]
        invariant(len(wanted) == len(set(wanted)), "two members shall have one task active")
        invariant(self.assignment_epoch <= self.epoch, "the target is ahead of its group")


def _held(progress: Progress) -> Iterable[Task]:
    for _, subtopology, number in (*progress.assigned, *progress.revoking):
        yield subtopology, number


def _has_active(progress: Progress, task: TypedTask) -> bool:
    return task in progress.assigned or task in progress.revoking
