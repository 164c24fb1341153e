"""Bugs put into the product on purpose, to show that the checks can fail.

Each is a function that changes a module in place, in the process of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...support import rotation
from .txn_mutants import TXN_MUTANTS

LATE_S = 0.3
AGE_MS_MAX = 60_000


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

    begin = Partition.begin_following

    def begin_following(self: Any, follower: Any) -> None:
        begin(self, follower)
        self.log.truncate_to(self.high_watermark)

    Partition.begin_following = begin_following  # type: ignore[method-assign]


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


def written_when_handed_over() -> None:
    """A write beside the loop counts as done as soon as the other thread has it."""
    from penstock.log.background_write import BackgroundWrite

    def run(self: Any) -> None:
        asyncio.get_running_loop().call_later(LATE_S, self._write.run)
        self._done.release()

    BackgroundWrite.run = run  # type: ignore[method-assign]


def failed_writes_are_overlooked() -> None:
    """What the disk has refused of a write beside the loop is taken for written."""
    from penstock.log.segment import LogSegment

    def end_write(self: Any, write: Any, *more: Any) -> None:
        write.error = None
        original(self, write, *more)

    original = LogSegment.end_write
    LogSegment.end_write = end_write  # type: ignore[method-assign]


def regions_from_the_start() -> None:
    """A stretch of a file is sent from the file's beginning, whatever was asked for."""
    from penstock.log.files import LogFile

    region = LogFile.region
    LogFile.region = lambda self, position, size: region(self, 0, size)  # type: ignore


def compaction_drops_the_last() -> None:
    """Compaction now and then takes the last record of a key for an older one."""
    from penstock.log.cleaner_filter import OffsetMap

    def add(self: Any, header: Any, batch: bytes) -> bool:
        added = original(self, header, batch)
        for key, offset in self.offsets.items():
            if offset % 3 == 0:
                self.offsets[key] = offset + 1
        return added

    original = OffsetMap.add
    OffsetMap.add = add  # type: ignore[method-assign]


def retention_takes_too_much() -> None:
    """Retention by size takes one segment more than it may."""
    from penstock.log import retention

    def too_big(log: Any) -> int:
        doomed = original(log)
        return min(doomed + 1, len(log.segments) - 1) if doomed else 0

    original = retention._too_big
    retention._too_big = too_big


def retention_takes_the_uncommitted() -> None:
    """Retention by age takes everything but the active segment, committed or not."""
    from penstock.log import retention

    def too_old(log: Any, now_ms: int) -> int:
        return len(log.segments) - 1 if 0 <= log.config.retention_ms <= AGE_MS_MAX else 0

    retention._committed = lambda log: len(log.segments)
    retention._too_old = too_old


def always_eligible() -> None:
    """A replica that may have lost data with the power still counts as having what is committed."""
    from penstock.metadata.broker_control import BrokerControl

    leave = BrokerControl._leave

    def leave_intact(self: Any, broker_id: int, *, intact: bool = False, **more: Any) -> Any:
        return leave(self, broker_id, intact=intact)

    BrokerControl._leave = leave_intact  # type: ignore[method-assign]


def recovery_points_of_the_removed() -> None:
    """A replica that is made anew grows while the file has the recovery point of the one before."""
    from penstock.log.offset_checkpoints import NOTHING, OffsetCheckpoints

    def remove(self: Any, tp: Any) -> None:
        self.on_lowered, on_lowered = lambda: None, self.on_lowered
        original(self, tp)
        self.on_lowered = on_lowered

    original = OffsetCheckpoints.remove
    OffsetCheckpoints.remove = remove  # type: ignore[method-assign]
    OffsetCheckpoints.removal_of = lambda self, tp: NOTHING  # type: ignore[method-assign]


def changes_of_acls_are_overlooked() -> None:
    """What a node has decided once it keeps, whatever becomes of the ACLs."""
    from penstock.auth.authorizer import Authorizer

    Authorizer._forget = lambda self: None  # type: ignore[method-assign]


def everybody_is_allowed() -> None:
    """What the authorizer says is not looked at."""
    from penstock.auth.authorizer import Authorizer

    Authorizer.allows = lambda self, *_, **more: True  # type: ignore[assignment, method-assign]


MUTANTS: dict[str, Callable[[], Any]] = {
    "no-fsync": no_fsync,
    "forgetful-sequences": forgetful_sequences,
    "watermark-of-the-leader-alone": watermark_of_the_leader_alone,
    "truncation-by-watermark": truncation_by_watermark,
    "votes-not-synced": votes_not_synced,
    "leads-before-registered": leads_before_registered,
    "answers-before-commit": answers_before_commit,
    "written-when-handed-over": written_when_handed_over,
    "failed-writes-are-overlooked": failed_writes_are_overlooked,
    "regions-from-the-start": regions_from_the_start,
    "compaction-drops-the-last": compaction_drops_the_last,
    "retention-takes-too-much": retention_takes_too_much,
    "retention-takes-the-uncommitted": retention_takes_the_uncommitted,
    "always-eligible": always_eligible,
    "recovery-points-of-the-removed": recovery_points_of_the_removed,
    "changes-of-acls-are-overlooked": changes_of_acls_are_overlooked,
    "everybody-is-allowed": everybody_is_allowed,
    **TXN_MUTANTS,
}
FOUND_FROM = {
    "no-fsync": (1, 0),
    "forgetful-sequences": (1, 0),
    "failed-writes-are-overlooked": (1, 0),
    "recovery-points-of-the-removed": (3, 28),
    "changes-of-acls-are-overlooked": (1, 0),
    "everybody-is-allowed": (1, 0),
}
"""How many nodes it takes (3), and a seed that found it soon when it was chosen (0); others may."""
FOUND_WITHIN_SEEDS = 60
A_DAY = 2


def of_the_day(day: int | None = None) -> list[str]:
    """The bugs whose turn it is."""
    return rotation.of_the_day(list(MUTANTS), A_DAY, day)
