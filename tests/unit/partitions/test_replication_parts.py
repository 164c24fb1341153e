"""The small parts of replication by themselves: quotas, sessions of followers, who is told what."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.config.log_config import LogConfig
from penstock.partitions.alter_partition_manager import RETRY_PAUSE_S, AlterPartitionManager
from penstock.partitions.replication_quota import BURST_S, ReplicationQuota, on_leader
from penstock.partitions.waiting import COMMITTED, MOVED, Readers
from penstock.replica.leader import IsrChange
from penstock.serving.read_session import (
    INITIAL_EPOCH,
    FetchPartition,
    FetchSessionCache,
    ReadContext,
)
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from unit.net.served import run
from unit.serving.rig import until


class Clock:
    def __init__(self) -> None:
        self.s = 1_000.0

    def monotonic(self) -> float:
        return self.s

    def now_ms(self) -> int:
        return int(self.s * 1000)


class Replica:
    """As much of a partition as a quota or a session sees."""

    def __init__(self, index: int = 0, *listed: str) -> None:
        self.index = index
        self.log = self
        self.config = LogConfig(leader_replication_throttled_replicas=listed)
        self.readers = Readers()


# -- quotas ----------------------------------------------------------------------------------------


def quota(rate: int, clock: Clock) -> Any:
    return ReplicationQuota(7, clock, on_leader, lambda: rate)


def test_which_replicas_are_throttled() -> None:
    limit = quota(100, Clock())
    assert not limit.covers(Replica(0))
    assert limit.covers(Replica(0, "*"))
    assert limit.covers(Replica(3, "0:1", "3:7"))
    assert not limit.covers(Replica(3, "0:7", "3:1"))


def test_a_rate_is_held_over_a_burst() -> None:
    clock = Clock()
    limit, partition = quota(1_000, clock), Replica(0, "*")
    limit.record(Replica(0), 10**9)  # what is not throttled does not count
    assert not limit.throttles(partition)
    limit.record(partition, int(1_000 * BURST_S))
    assert not limit.throttles(partition)
    limit.record(partition, 500)
    assert limit.throttles(partition)
    assert not limit.throttles(Replica(0))
    assert abs(limit.wait_s() - 0.5) < 1e-6
    clock.s += 0.51
    assert not limit.throttles(partition)


def test_a_rate_of_nothing_stops_everything() -> None:
    limit = quota(0, Clock())
    assert limit.throttles(Replica(0, "*"))
    limit.record(Replica(0, "*"), 5)


# -- fetch sessions --------------------------------------------------------------------------------


class Sessions:
    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots, Random(1).randrange)

    def open(self, replica_id: int = -1, now_ms: int = 0) -> ReadContext:
        wanted = [FetchPartition("t", index, 0, 100, -1) for index in range(3)]
        return self.cache.context(
            0, INITIAL_EPOCH, wanted, [], by_topic_id=False, now_ms=now_ms, replica_id=replica_id
        )


@pytest.mark.uncompiled  # which takes no stand-in for a partition
def test_a_session_is_told_of_changes_until_nobody_waits() -> None:
    context = Sessions().open()
    session, [first, second, _] = context.session, context.to_check()
    partition: Any = Replica()
    for wanted in (first, second):
        wanted.attach(partition)
    session.dirty.clear()
    told: list[tuple[int, int]] = []
    parked: Any = SimpleNamespace(moved=lambda came, why: told.append((came, why)))
    session.parked = parked
    first.moved(7, MOVED)
    first.moved(9, MOVED)
    first.moved(9, COMMITTED)
    assert told == [(7, MOVED), (2, MOVED)]
    assert list(session.dirty) == [first]
    assert list(partition.readers.consumers) == [first, second]
    session.parked = None
    second.moved(9, MOVED)
    assert len(told) == 2
    assert list(session.dirty) == [first, second]
    # It is worth a look already: it need not be told again.
    assert list(partition.readers.consumers) == [first]
    session.close()
    assert not partition.readers.consumers


def test_another_isolation_or_rack_makes_everything_worth_a_look() -> None:
    session = Sessions().open().session
    session.set_visibility((False, ""))
    session.dirty.clear()
    session.set_visibility((False, ""))
    assert not session.dirty
    session.set_visibility((True, ""))
    assert len(session.dirty) == 3


def test_a_follower_takes_the_slot_of_a_consumer() -> None:
    sessions = Sessions(slots=2)
    first, second = sessions.open(), sessions.open()
    assert sessions.open().session_id == 0
    follower = sessions.open(replica_id=4)
    assert follower.session_id
    assert (first.session.id, second.session.id != 0) == (0, True)
    assert sessions.cache.evicted_total == 1
    # Its next session takes the place of its last one.
    again = sessions.open(replica_id=4)
    assert (follower.session.id, again.session.id != 0) == (0, True)
    assert len(sessions.cache) == 2
    other = sessions.open(replica_id=5)
    assert other.session_id
    # Followers are not put out for one another.
    assert sessions.open(replica_id=6).session_id == 0


# -- changes of the ISR ----------------------------------------------------------------------------


class Leading:
    """As much of a leader's partition as its way to the controller sees."""

    def __init__(self, index: int) -> None:
        self.topic_id, self.index = b"t" * 16, index
        self.leader = self.leadership = self
        self.pending: IsrChange | None = None
        self.accepted: list[IsrChange] = []

    def wants(self, *members: int) -> IsrChange:
        self.pending = IsrChange(tuple((m, 1) for m in members), 0, 0, expands=True)
        return self.pending

    def refused(self, change: IsrChange, code: int) -> bool:
        return True

    def altered(self, change: IsrChange, *_: Any) -> None:
        self.accepted.append(change)

    def check(self) -> None:
        raise AssertionError


def test_a_change_that_is_asked_for_again_does_not_displace_a_newer_one() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        asked: list[AlterPartitionRequest] = []

        async def call(request: AlterPartitionRequest) -> AlterPartitionResponse:
            asked.append(request)
            if len(asked) == 2:
                await gate.wait()
            code = 0 if len(asked) > 1 else int(ErrorCode.UNKNOWN_SERVER_ERROR)
            return AlterPartitionResponse(
                topics=[
                    ResponseTopicData(
                        topic_id=t.topic_id,
                        partitions=[
                            ResponsePartitionData(
                                partition_index=p.partition_index, error_code=code
                            )
                            for p in t.partitions
                        ],
                    )
                    for t in request.topics
                ]
            )

        manager = AlterPartitionManager(1, lambda: 1, call)
        first: Any = Leading(0)
        other: Any = Leading(1)
        manager.submit(first, first.wants(1, 2))
        await until(lambda: manager.failures_total == 1)
        manager.submit(other, other.wants(1, 2))
        await until(lambda: len(asked) == 2)
        newer = first.wants(1, 3)  # the metadata has overtaken the refused one
        manager.submit(first, newer)
        await asyncio.sleep(RETRY_PAUSE_S * 2)  # the refused one is due again
        gate.set()
        await until(lambda: first.accepted == [newer])
        await manager.stop()

    run(test)
