"""How a member gets from its present assignment to its target.

    state                   waits for                        then
    ----------------------  -------------------------------  ------------------------------------
    STABLE                  a newer target                   the next step
    UNREVOKED_PARTITIONS    the member to name a set of      the next step
                            owned partitions without those
                            that it must give up
    UNRELEASED_PARTITIONS   others to give up partitions     the next step, at every heartbeat
                            that it shall get
    UNKNOWN                 a member without partitions      the next step; others are fenced

The next step towards the target: give up first. While the member holds a partition that is not in
its target it stays in its epoch and is UNREVOKED. Then it enters the target's epoch and gets those
partitions that nobody else holds; it is UNRELEASED while some are missing, else STABLE.

What a member no longer wants although it is in the target is taken away at once: topics that it has
unsubscribed from since the target was made.

What is assigned is a partition in a consumer group, a task in a streams group: the table does not
look into it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from penstock.base.errors import ApiError, ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member that went away for a short time: its place is kept until its session ends."""
K = TypeVar("K", bound=Hashable)


class MemberState(IntEnum):
    """Kafka's numbers, as the records of consumer groups carry them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Progress(NamedTuple, Generic[K]):
    """How far a member has followed its group."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    """The epoch before the last change of it, which a member repeats whose answer was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Mapping[K, int] = {}
    """What the member may consume, with the epoch in which it was given each."""
    revoking: Mapping[K, int] = {}
    """What the member must give up before it comes to the next epoch."""


class Situation(NamedTuple, Generic[K]):
    """Everything a step depends on."""

    progress: Progress[K]
    target_epoch: int
    target: frozenset[K]
    wanted: Callable[[K], bool]
    """Whether the member still wants it."""
    owned: frozenset[K] | None
    """What the member says it owns; None if it did not say."""
    is_free: Callable[[K], bool]
    """No other member holds it."""

    def still_owns(self, held: Mapping[K, int]) -> bool:
        return self.owned is None or any(one in self.owned for one in held)


def reconcile(situation: Situation[K]) -> Progress[K]:
    """The member's progress after this heartbeat; the same object's value if nothing changed."""
    match situation.progress.state:
        case MemberState.STABLE:
            return _stable(situation)
        case MemberState.UNREVOKED_PARTITIONS:
            return _unrevoked(situation)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_step(situation)
        case MemberState.UNKNOWN:
            return _unknown(situation)


def _stable(s: Situation[K]) -> Progress[K]:
    return _next_step(s) if s.progress.epoch != s.target_epoch else _without_unwanted(s)


def _unrevoked(s: Situation[K]) -> Progress[K]:
    if s.still_owns(s.progress.revoking):
        return _without_unwanted(s)
    return _next_step(s)


def _unknown(s: Situation[K]) -> Progress[K]:
    if s.owned is None or s.owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this coordinator does not know: give up all "
            "partitions and join again.",
        )
    return _next_step(s)


def _without_unwanted(s: Situation[K]) -> Progress[K]:
    """Take away what the member no longer wants; nothing else changes."""
    before = s.progress
    dropped = {one: epoch for one, epoch in before.assigned.items() if not s.wanted(one)}
    if not dropped:
        return before
    kept = {one: epoch for one, epoch in before.assigned.items() if one not in dropped}
    if not s.still_owns(dropped):
        return before._replace(assigned=kept)
    return before._replace(
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=kept,
        revoking={**before.revoking, **dropped},
    )


def _next_step(s: Situation[K]) -> Progress[K]:
    before = s.progress
    target = {one for one in s.target if s.wanted(one)}
    kept = {one: epoch for one, epoch in before.assigned.items() if one in target}
    surplus = {one: epoch for one, epoch in before.assigned.items() if one not in target}
    if surplus and s.still_owns(surplus):
        return before._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus
        )
    missing = [one for one in target if one not in kept]
    granted = {one: s.target_epoch for one in missing if s.is_free(one)}
    complete = len(granted) == len(missing)
    return Progress(
        epoch=s.target_epoch,
        previous_epoch=_previous(before, s.target_epoch),
        state=MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS,
        assigned={**kept, **granted},
        revoking={},
    )


def _previous(before: Progress[K], epoch: int) -> int:
    """Kept while the epoch stays, so that the answer may be lost more than once."""
    return before.previous_epoch if before.epoch == epoch else before.epoch
