"""Who waits for offsets: told in order, and told when what they wait for is cut off."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.base.errors import ErrorCode
from penstock.partitions.partition import ACKS_ALL, Partition
from penstock.partitions.waiting import AppendWaiters

PARTITION = cast("Partition", None)  # only handed on
pytestmark = pytest.mark.uncompiled  # which looks at the type


class Waiter:
    def __init__(self, *, outlives_leadership: bool = True) -> None:
        self.outlives_leadership = outlives_leadership
        self.told: list[Any] = []

    def partition_done(self) -> None:
        self.told.append(None)

    def partition_failed(self, _: Partition, code: ErrorCode, message: str) -> None:
        self.told.append(code)


def waiting(*end_offsets: int) -> tuple[AppendWaiters, list[Waiter]]:
    waiters, made = AppendWaiters(PARTITION), [Waiter() for _ in end_offsets]
    for end_offset, waiter in zip(end_offsets, made, strict=True):
        waiters.add(end_offset, ACKS_ALL, waiter)
    return waiters, made


def test_a_batch_that_was_sent_again_hides_nobody_from_the_cut() -> None:
    # A repeated batch waits for the offset of the first one, however much came in between.
    waiters, (first, lost, again, also_lost, once_more) = waiting(5, 9, 5, 9, 5)
    waiters.fail_beyond(6, ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert lost.told == also_lost.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    waiters.acknowledge(lambda end_offset, _: end_offset <= 9)
    assert first.told == again.told == once_more.told == [None]
    assert lost.told == also_lost.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_batch_that_was_sent_again_waits_for_nobody_else() -> None:
    waiters, (first, later, again) = waiting(5, 9, 5)
    waiters.acknowledge(lambda end_offset, _: end_offset <= 5)
    assert first.told == again.told == [None]
    assert not later.told


def test_those_of_two_leaderships_are_told_of_the_cut() -> None:
    undecided, (old,) = waiting(9)
    waiters, (newer,) = waiting(5)
    waiters.hand_over(undecided)
    undecided.fail_beyond(6, ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert old.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not newer.told
