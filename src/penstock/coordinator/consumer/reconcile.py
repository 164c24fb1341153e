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

Topics that the member has unsubscribed from since the target was made are taken away at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.coordinator.consumer.member import MemberState, Progress
from penstock.coordinator.consumer.partitions import Partition


class Situation(NamedTuple):
    """Everything a step depends on."""

    progress: Progress
    target_epoch: int
    target: frozenset[Partition]
    topic_ids: frozenset[Uuid]
    """What the member subscribes to now."""
    owned: frozenset[Partition] | None
    """What the member says it owns; None if it did not say."""
    is_free: Callable[[Partition], bool]
    """No other member holds the partition."""

    def still_owns(self, partitions: Mapping[Partition, int]) -> bool:
        return self.owned is None or any(p in self.owned for p in partitions)


def reconcile(situation: Situation) -> Progress:
    """The member's progress after this heartbeat; the same object's value if nothing changed."""
    return _ROWS[situation.progress.state](situation)


def _stable(s: Situation) -> Progress:
    return _next_step(s) if s.progress.epoch != s.target_epoch else _without_unsubscribed(s)


def _unrevoked(s: Situation) -> Progress:
    if s.still_owns(s.progress.revoking):
        return _without_unsubscribed(s)
    return _next_step(s)


def _unknown(s: Situation) -> Progress:
    if s.owned is None or s.owned:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this coordinator does not know: give up all "
            "partitions and join again.",
        )
    return _next_step(s)


def _without_unsubscribed(s: Situation) -> Progress:
    """Take away partitions of topics that the member no longer wants; nothing else changes."""
    before = s.progress
    dropped = {p: epoch for p, epoch in before.assigned.items() if p[0] not in s.topic_ids}
    if not dropped:
        return before
    kept = {p: epoch for p, epoch in before.assigned.items() if p not in dropped}
    if not s.still_owns(dropped):
        return before._replace(assigned=kept)
    return before._replace(
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=kept,
        revoking={**before.revoking, **dropped},
    )


def _next_step(s: Situation) -> Progress:
    before = s.progress
    target = {p for p in s.target if p[0] in s.topic_ids}
    kept = {p: epoch for p, epoch in before.assigned.items() if p in target}
    surplus = {p: epoch for p, epoch in before.assigned.items() if p not in target}
    if surplus and s.still_owns(surplus):
        return before._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=surplus
        )
    missing = [p for p in target if p not in kept]
    granted = {p: s.target_epoch for p in missing if s.is_free(p)}
    complete = len(granted) == len(missing)
    return Progress(
        epoch=s.target_epoch,
        previous_epoch=_previous(before, s.target_epoch),
        state=MemberState.STABLE if complete else MemberState.UNRELEASED_PARTITIONS,
        assigned={**kept, **granted},
        revoking={},
    )


def _previous(before: Progress, epoch: int) -> int:
    """Kept while the epoch stays, so that the answer may be lost more than once."""
    return before.previous_epoch if before.epoch == epoch else before.epoch


_ROWS: dict[MemberState, Callable[[Situation], Progress]] = {
    MemberState.STABLE: _stable,
    MemberState.UNREVOKED_PARTITIONS: _unrevoked,
    MemberState.UNRELEASED_PARTITIONS: _next_step,
    MemberState.UNKNOWN: _unknown,
}
