"""The small parts of replication by themselves: quotas, sessions of followers, who is told what."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock.broker.fetch_session import (
    INITIAL_EPOCH,
    FetchContext,
    FetchPartition,
    FetchSessionCache,
)
from penstock.broker.replication_quota import BURST_S, ReplicationQuota, on_leader
from penstock.config.log_config import LogConfig


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
        self.readers: dict[Any, None] = {}

    def watchers_for(self, _: FetchPartition) -> dict[Any, None]:
        return self.readers


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

    def open(self, replica_id: int = -1, now_ms: int = 0) -> FetchContext:
        wanted = [FetchPartition("t", index, 0, 100, -1) for index in range(3)]
        return self.cache.context(
            0, INITIAL_EPOCH, wanted, [], by_topic_id=False, now_ms=now_ms, replica_id=replica_id
        )


def test_a_session_is_told_of_changes_until_nobody_waits() -> None:
    context = Sessions().open()
    session, [first, second, _] = context.session, context.to_look_at()
    partition: Any = Replica()
    for wanted in (first, second):
        wanted.attach(partition)
    session.dirty.clear()
    parked: Any = object()
    session.parked = parked
    assert first.touch() is parked
    assert list(session.dirty) == [first]
    assert list(partition.readers) == [first, second]
    session.parked = None
    assert second.touch() is None
    assert list(session.dirty) == [first, second]
    # It is worth a look already: it need not be told again.
    assert list(partition.readers) == [first]
    session.close()
    assert not partition.readers


def test_another_isolation_or_rack_makes_everything_worth_a_look() -> None:
    session = Sessions().open().session
    session.look_with((False, ""))
    session.dirty.clear()
    session.look_with((False, ""))
    assert not session.dirty
    session.look_with((True, ""))
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
