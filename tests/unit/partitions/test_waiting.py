"""Who waits for offsets: told in order, and told when what they wait for is cut off."""

from __future__ import annotations

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.partitions.waiting import ACKS_ALL, ACKS_LEADER, ACKS_NONE, AppendWaiters


class Waiter:
    def __init__(self, *, outlives_leadership: bool = True) -> None:
        self.outlives_leadership = outlives_leadership
        self.told: list[Any] = []

    def waits(self) -> None:
        self.told.append("waits")

    def appended(self) -> None:
        self.told.append(None)

    def failed(self, code: ErrorCode, message: str) -> None:
        self.told.append(code)


def waiting(*end_offsets: int) -> tuple[AppendWaiters, list[Waiter]]:
    waiters, made = AppendWaiters(), [Waiter() for _ in end_offsets]
    for end_offset, waiter in zip(end_offsets, made, strict=True):
        waiters.add(end_offset, ACKS_ALL, waiter)
    return waiters, made


def test_a_batch_that_was_sent_again_hides_nobody_from_the_cut() -> None:
    # A repeated batch waits for the offset of the first one, however much came in between.
    waiters, (first, lost, again, also_lost, once_more) = waiting(5, 9, 5, 9, 5)
    waiters.cut(6, ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
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
    waiters, (old,) = waiting(9)
    waiters.leadership_lost(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    newer = Waiter()
    waiters.add(5, ACKS_ALL, newer)
    waiters.cut(6, ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert old.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not newer.told


def test_a_wait_that_does_not_outlive_the_leadership_fails_with_it() -> None:
    waiters, (producer,) = waiting(9)
    coordinator = Waiter(outlives_leadership=False)
    waiters.add(9, ACKS_ALL, coordinator)
    waiters.leadership_lost(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    assert coordinator.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    waiters.acknowledge(lambda end_offset, _: end_offset <= 9)
    assert producer.told == [None]


def test_what_is_written_is_acknowledged_as_its_acks_ask() -> None:
    waiters = AppendWaiters()
    made = [Waiter() for _ in range(4)]
    for end, acks, waiter in zip(
        (1, 2, 3, 4), (ACKS_NONE, ACKS_LEADER, ACKS_ALL, ACKS_LEADER), made, strict=True
    ):
        waiters.unwritten.append((end, acks, waiter))
    assert waiters.written(3, durable=3, committed=2)
    assert [waiter.told for waiter in made] == [[None], [None], ["waits"], []]
    waiters.not_written(ErrorCode.KAFKA_STORAGE_ERROR, "")
    assert made[3].told == [ErrorCode.KAFKA_STORAGE_ERROR]
    waiters.acknowledge(lambda end, acks: end <= 3)
    assert made[2].told == ["waits", None]
