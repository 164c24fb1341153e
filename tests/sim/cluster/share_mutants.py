"""Bugs in share groups, put into the product on purpose: one for each promise that is checked.

As in `mutants`, each is a function that changes a module in place, in the process of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def two_may_hold() -> None:
    """What a member holds may be acquired again, as if its lock had run out."""
    from penstock.serving.share_driver import ShareDriver

    def acquire(self: Any, member_id: str, *args: Any, **more: Any) -> Any:
        core = self.core
        for member in [m for m in core.held_by_member() if m != member_id]:
            self._begin(core.release(member, self._env.now_ms()), None)
        return original(self, member_id, *args, **more)

    original = ShareDriver.acquire
    ShareDriver.acquire = acquire  # type: ignore[method-assign]


def locks_run_out_early() -> None:
    """A lock is in force for half of its time."""
    from penstock.share.locks import Locks

    def add(self: Any, member: str, now_ms: int, duration_ms: int, ranges: Any) -> None:
        original(self, member, now_ms, duration_ms // 2, ranges)

    original = Locks.add
    Locks.add = add  # type: ignore[method-assign]


def renewals_are_forgotten() -> None:
    """Who asks for more time is told that it has it."""
    from penstock.share import acknowledging
    from penstock.share.values import AckType

    def checked(*args: Any) -> Any:
        return [part for part in original(*args) if part.type != AckType.RENEW]

    original = acknowledging.checked
    acknowledging.checked = checked


def acknowledged_before_written() -> None:
    """Acknowledgements are answered when they are begun, whether they are written or not."""
    from penstock.serving.share_driver import ShareDriver

    def begin(self: Any, change: Any, done: Any) -> None:
        original(self, change, None)
        if done is not None:
            done(None)

    original = ShareDriver._begin
    ShareDriver._begin = begin  # type: ignore[method-assign]


def counts_are_not_persisted() -> None:
    """What is loaded was never delivered before."""
    from penstock.serving import share_driver
    from penstock.share.partition import SharePartition

    def make(limits: Any, state: Any, start_offset: int) -> Any:
        batches = [batch._replace(delivery_count=0) for batch in state.batches]
        return SharePartition(limits, state._replace(batches=batches), start_offset)

    share_driver.SharePartition = make  # type: ignore[assignment, misc]


def one_delivery_too_many() -> None:
    """The limit of deliveries is one higher than it was set."""
    from penstock.share import acknowledging

    def outcome(limits: Any, said: int, count: int) -> Any:
        return original(limits, said, count - 1)

    original = acknowledging.outcome
    acknowledging.outcome = outcome


def unseen_is_done() -> None:
    """What nobody has acknowledged before a fail-over, but others behind it, is taken for done."""
    from penstock.share import loading
    from penstock.share.window import ARCHIVED

    loading.UNSEEN = ARCHIVED  # type: ignore[misc, assignment]


def some_writes_are_lost() -> None:
    """One write of a state in eight is never sent, and counts as done."""
    from penstock.base.errors import ErrorCode
    from penstock.coordinating.share_persister import SharePersister

    def write(self: Any, *args: Any) -> None:
        numbers.append(len(numbers))
        if len(numbers) % 8:
            original(self, *args)
        else:
            self._loop.call_soon(args[-1], ErrorCode.NONE, "")

    numbers: list[int] = []
    original = SharePersister.write
    SharePersister.write = write  # type: ignore[method-assign]


def pruned_too_far() -> None:
    """The state topic is pruned up to the newest of all snapshots, not the oldest."""
    from penstock.coordinator.share_state.pruning import SnapshotOffsets

    def prunable(self: Any) -> int | None:
        return max(self._newest.values(), default=None)

    SnapshotOffsets.prunable = property(prunable)  # type: ignore[assignment]


def sessions_outlive_connections() -> None:
    """Nobody is told that the connection of a member was lost."""
    from penstock.serving.share import ShareService

    ShareService.connection_lost = lambda self, connection: None  # type: ignore[method-assign]


def aborted_records_are_given() -> None:
    """Members get the records of aborted transactions, whatever their group reads."""
    from penstock.serving import share_read

    share_read.aborted_ranges = lambda *_: []  # type: ignore[assignment]


def states_of_topics_that_are_gone() -> None:
    """Nobody forgets the states of a topic that was deleted."""
    from penstock.coordinator.effects import Effects
    from penstock.coordinator.share_state.shard import ShareStateShard

    ShareStateShard.forget_topics = lambda self, _: Effects()  # type: ignore[method-assign]


def dead_letters_are_lost() -> None:
    """One transaction of dead letters in three is not written, and counts as done."""
    from penstock.serving.dead_letters import DeadLetterDriver

    async def commit(self: Any, batches: Any, marker: str) -> None:
        numbers.append(len(numbers))
        if len(numbers) % 3:
            await original(self, batches, marker)

    numbers: list[int] = []
    original = DeadLetterDriver._commit
    DeadLetterDriver._commit = commit  # type: ignore[method-assign]


def dead_letters_are_doubled() -> None:
    """One transaction of dead letters in three is committed, and taken for refused."""
    from penstock.serving.dead_letter_topics import NotWritable
    from penstock.serving.dead_letters import DeadLetterDriver

    async def commit(self: Any, batches: Any, marker: str) -> None:
        await original(self, batches, marker)
        numbers.append(len(numbers))
        if batches and not len(numbers) % 3:
            raise NotWritable("mutant", "it is said to be refused")

    numbers: list[int] = []
    original = DeadLetterDriver._commit
    DeadLetterDriver._commit = commit  # type: ignore[method-assign]


def no_rest() -> None:
    """A record that comes back rests for half of its time."""
    from penstock.share.values import RetryBackoff

    def pause_ms(self: Any, delivery_count: int) -> int:
        return original(self, delivery_count) // 2

    original = RetryBackoff.pause_ms
    RetryBackoff.pause_ms = pause_ms  # type: ignore[method-assign]


SHARE_MUTANTS: dict[str, Callable[[], Any]] = {
    "two-may-hold": two_may_hold,
    "locks-run-out-early": locks_run_out_early,
    "renewals-are-forgotten": renewals_are_forgotten,
    "acknowledged-before-written": acknowledged_before_written,
    "counts-are-not-persisted": counts_are_not_persisted,
    "one-delivery-too-many": one_delivery_too_many,
    "unseen-is-done": unseen_is_done,
    "some-writes-are-lost": some_writes_are_lost,
    "pruned-too-far": pruned_too_far,
    "sessions-outlive-connections": sessions_outlive_connections,
    "aborted-records-are-given": aborted_records_are_given,
    "states-of-topics-that-are-gone": states_of_topics_that_are_gone,
    "dead-letters-are-lost": dead_letters_are_lost,
    "dead-letters-are-doubled": dead_letters_are_doubled,
    "no-rest": no_rest,
}
