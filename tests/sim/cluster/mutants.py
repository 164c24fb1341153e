"""Bugs put into the product on purpose, to show that the checks can fail.

Each is a function that changes a module in place, in the process of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .txn_mutants import TXN_MUTANTS


def no_fsync() -> None:
    """A flush reports success and syncs nothing."""
    from penstock.log.flush import FlushTask

    FlushTask.run = lambda self: self._unpin()  # type: ignore[method-assign]


def forgetful_sequences() -> None:
    """A retried batch is not recognised as one that is there already."""
    from penstock.log.producer_state import AppendOrigin, ProducerStateManager

    stage = ProducerStateManager.stage

    def stage_anything(
        self: Any, header: Any, data: Any, offset: int, origin: Any, *more: Any
    ) -> Any:
        if origin is AppendOrigin.CLIENT:
            origin = AppendOrigin.REPLICATION
        return stage(self, header, data, offset, origin, *more)

    ProducerStateManager.stage = stage_anything  # type: ignore[assignment, method-assign]


def watermark_of_the_leader_alone() -> None:
    """A leader counts as committed what it has itself, whoever else has it."""
    from penstock.replica.leader import Leader

    def advance(self: Any, durable_offset: int, now_ms: int) -> bool:
        moved: bool = durable_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, durable_offset)
        return moved

    Leader.advance = advance  # type: ignore[method-assign]


def truncation_by_watermark() -> None:
    """A follower cuts its log at its own high watermark, not where the epochs part."""
    from penstock.partitions.partition import Partition

    begin = Partition._begin_following

    def begin_following(self: Any) -> None:
        begin(self)
        self.log.truncate_to(self.high_watermark)

    Partition._begin_following = begin_following  # type: ignore[method-assign]


def votes_not_synced() -> None:
    """The quorum's state is written but not made durable."""
    from penstock.controlling import metadata_log
    from penstock.log.files import write_atomically

    def write(path: str, data: bytes, *, sync: bool = True) -> None:
        write_atomically(path, data, sync=False)

    metadata_log.write_atomically = write  # type: ignore[attr-defined]


def leads_before_registered() -> None:
    """A node that starts leads what the metadata says it led in its last run."""
    from penstock.partitions.replica_manager import ReplicaManager

    open_leader = ReplicaManager._open_leader

    def open_anyhow(self: Any, topic: Any, index: int) -> Any:
        started, self._started = self._started, True
        try:
            return open_leader(self, topic, index)
        finally:
            self._started = started

    ReplicaManager._open_leader = open_anyhow  # type: ignore[method-assign]


def answers_before_commit() -> None:
    """The group coordinator answers before its records are committed."""
    from penstock.coordinating.shard_driver import ShardDriver

    def perform(self: Any, effects: Any, now_ms: int) -> None:
        replies, effects.replies[:] = list(effects.replies), []
        original(self, effects, now_ms)
        self._give(replies)

    original = ShardDriver._perform
    ShardDriver._perform = perform  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], Any]] = {
    "no-fsync": no_fsync,
    "forgetful-sequences": forgetful_sequences,
    "watermark-of-the-leader-alone": watermark_of_the_leader_alone,
    "truncation-by-watermark": truncation_by_watermark,
    "votes-not-synced": votes_not_synced,
    "leads-before-registered": leads_before_registered,
    "answers-before-commit": answers_before_commit,
    **TXN_MUTANTS,
}
