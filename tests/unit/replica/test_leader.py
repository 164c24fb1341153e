"""The leader's decisions one by one: what is committed, who joins, who leaves, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.replica.leader import UNKNOWN_BROKER_EPOCH, IsrChange, Leader
from unit.replica.model import Registration

NOW = 1_000_000
LAG_MS = 100
ME = 1


class Cluster:
    """The brokers as the metadata has them."""

    def __init__(self) -> None:
        self.epochs: dict[int, int | None] = {1: 10, 2: 20, 3: 30}
        self.out: set[int] = set()

    def broker_epoch(self, broker_id: int) -> int | None:
        return self.epochs[broker_id]

    def takes_part(self, broker_id: int) -> bool:
        return broker_id not in self.out


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def leading(cluster: Cluster, isr: tuple[int, ...] = (1, 2, 3), **how: Any) -> Leader:
    settings: dict[str, Any] = {
        "end_offset": 10,
        "high_watermark": 5,
        "min_insync_replicas": 1,
        "lag_time_max_ms": LAG_MS,
        "now_ms": NOW,
    }
    return Leader(ME, cluster, Registration((1, 2, 3), isr, ME, 4, 7), **(settings | how))


def pending(leader: Leader) -> IsrChange | None:
    return leader.pending


def isr(leader: Leader) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The committed and the maximal one."""
    return leader.isr, leader.maximal_isr


def fetch(leader: Leader, broker_id: int, offset: int, now_ms: int = NOW) -> None:
    leader.fetched(broker_id, offset, 0, 10 * broker_id, now_ms)


def test_committed_is_what_all_in_sync_have(cluster: Cluster) -> None:
    leader = leading(cluster)
    fetch(leader, 2, 8)
    assert not leader.advance(10, NOW)  # nothing is known of 3
    fetch(leader, 3, 7)
    assert leader.advance(10, NOW)
    assert leader.high_watermark == 7
    fetch(leader, 3, 10)
    assert leader.advance(10, NOW)
    assert leader.high_watermark == 8


def test_the_leader_counts_only_what_it_vouches_for(cluster: Cluster) -> None:
    leader = leading(cluster)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.advance(6, NOW)
    assert leader.high_watermark == 6


def test_the_watermark_does_not_go_back(cluster: Cluster) -> None:
    leader = leading(cluster)
    fetch(leader, 2, 9)
    fetch(leader, 3, 9)
    leader.advance(10, NOW)
    fetch(leader, 3, 6)
    assert not leader.advance(10, NOW)
    assert leader.high_watermark == 9


def test_nothing_is_committed_below_the_minimum(cluster: Cluster) -> None:
    leader = leading(cluster, (1,), min_insync_replicas=2)
    assert leader.under_min_isr
    assert not leader.advance(10, NOW)
    leader.min_insync_replicas = 1
    assert leader.advance(10, NOW)
    assert leader.high_watermark == 10


def test_no_more_can_be_asked_for_than_there_are(cluster: Cluster) -> None:
    assert not leading(cluster, min_insync_replicas=5).under_min_isr


def test_who_is_about_to_join_is_waited_for(cluster: Cluster) -> None:
    leader = leading(cluster, (1,))
    fetch(leader, 2, 10)
    leader.appended(12, NOW + 1)
    assert leader.advance(12, NOW + 1)
    assert leader.high_watermark == 10
    # Not for ever, and not if it cannot join.
    cluster.out.add(2)
    assert leader.advance(11, NOW + 2)
    cluster.out.clear()
    assert leader.advance(12, NOW + LAG_MS + 2)


def test_a_follower_joins_at_the_watermark_and_the_epoch_start(cluster: Cluster) -> None:
    leader = leading(cluster, (1,))
    assert leader.epoch_start_offset == 10
    fetch(leader, 2, 9)
    assert leader.expand(2) is None  # at the watermark, but not at the start of the epoch
    leader.appended(20, NOW)
    leader.advance(15, NOW + LAG_MS + 1)
    fetch(leader, 2, 14)
    assert leader.expand(2) is None  # not at the watermark
    fetch(leader, 2, 15)
    change = leader.expand(2)
    assert change == IsrChange(((1, 10), (2, 20)), 4, 7, expands=True)
    assert leader.maximal_isr == (1, 2)
    assert leader.isr == (1,)
    assert leader.expand(3) is None  # one at a time


@pytest.mark.parametrize("why", ["fenced", "another life", "unregistered"])
def test_who_may_not_join(cluster: Cluster, why: str) -> None:
    leader = leading(cluster, (1,))
    fetch(leader, 2, 10)
    if why == "fenced":
        cluster.out.add(2)
    else:
        cluster.epochs[2] = 21 if why == "another life" else None
    assert leader.expand(2) is None


def test_a_request_of_an_earlier_life_counts_for_nothing(cluster: Cluster) -> None:
    leader = leading(cluster)
    cluster.epochs[2] = 25
    with pytest.raises(ApiError) as caught:
        fetch(leader, 2, 10)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.followers[2].end_offset == -1
    # One from a life that the metadata here has not heard of yet is taken, but cannot join.
    cluster.epochs[2] = 15
    fetch(leader, 2, 10)
    assert leader.followers[2].end_offset == 10
    leader.fetched(3, 9, 0, UNKNOWN_BROKER_EPOCH, NOW)
    assert leader.followers[3].end_offset == 9


def test_a_member_that_lags_has_to_leave(cluster: Cluster) -> None:
    leader = leading(cluster)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    # They have all there is, so they lag behind nothing.
    assert leader.shrink(NOW + 100 * LAG_MS) is None
    later = NOW + 200 * LAG_MS
    leader.appended(11, later)
    assert leader.shrink(later + LAG_MS) is None
    fetch(leader, 2, 11, later + LAG_MS)
    change = leader.shrink(later + LAG_MS + 1)
    assert change is not None
    assert change.members == (1, 2)
    assert leader.maximal_isr == (1, 2, 3)  # until the controller says so
    assert leader.shrink(later + 2 * LAG_MS) is None
    assert not leader.altered(change, [1, 2], 4, 8)
    assert isr(leader) == ((1, 2, 3), (1, 2, 3))  # until the metadata says so, with what it needs
    leader.follow(Registration((1, 2, 3), (1, 2), ME, 4, 8))
    assert isr(leader) == ((1, 2), (1, 2))
    assert pending(leader) is None


def test_a_follower_that_keeps_pace_does_not_lag(cluster: Cluster) -> None:
    """It never has everything while the leader writes on, but what there was when it asked last."""
    leader = leading(cluster)
    now = NOW
    fetch(leader, 3, 10)
    for end in range(11, 60):
        leader.appended(end, now)
        fetch(leader, 2, end - 1, now)
        now += LAG_MS // 2
    change = leader.shrink(now)
    assert change is not None
    assert change.members == (1, 2)


def test_a_member_that_never_fetched_has_its_time(cluster: Cluster) -> None:
    leader = leading(cluster)
    assert leader.shrink(NOW + LAG_MS) is None
    change = leader.shrink(NOW + LAG_MS + 1)
    assert change is not None
    assert change.isr == ((1, 10),)


def test_what_the_controller_refuses(cluster: Cluster) -> None:
    leader = leading(cluster, (1,))
    fetch(leader, 2, 10)
    change = leader.expand(2)
    assert change is not None
    assert leader.refused(change, ErrorCode.NOT_CONTROLLER)  # ask again
    assert pending(leader) is change
    for code in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH):
        assert not leader.refused(change, code)
        # The controller may have let it in: wait for what the metadata says.
        assert leader.maximal_isr == (1, 2)
    assert not leader.refused(change, ErrorCode.INELIGIBLE_REPLICA)
    assert pending(leader) is None
    assert leader.maximal_isr == (1,)
    assert not leader.refused(change, ErrorCode.NOT_CONTROLLER)


def test_the_metadata_overtakes_an_answer(cluster: Cluster) -> None:
    leader = leading(cluster, (1,))
    fetch(leader, 2, 10)
    change = leader.expand(2)
    assert change is not None
    leader.follow(Registration((1, 2, 3), (1, 3), ME, 4, 7))
    assert pending(leader) is change  # nothing new: the same partition epoch
    leader.follow(Registration((1, 2, 3), (1, 3), ME, 4, 9))
    assert (leader.isr, leader.partition_epoch) == ((1, 3), 9)
    assert pending(leader) is None
    assert not leader.altered(change, [1, 2], 4, 8)
    assert leader.isr == (1, 3)


def test_a_new_epoch_keeps_what_is_known_of_followers(cluster: Cluster) -> None:
    leader = leading(cluster)
    fetch(leader, 2, 10)
    leader.appended(15, NOW)
    leader.begin_epoch(Registration((1, 2, 3), (1, 2), ME, 5, 9), NOW + 7)
    assert (leader.leader_epoch, leader.epoch_start_offset, leader.isr) == (5, 15, (1, 2))
    assert leader.followers[2].end_offset == 10
    assert leader.followers[2].last_caught_up_ms == NOW + 7
    assert leader.followers[3].last_caught_up_ms == 0


def test_replicas_come_and_go(cluster: Cluster) -> None:
    leader = leading(cluster, (1, 2))
    fetch(leader, 2, 10)
    leader.follow(Registration((1, 3), (1,), ME, 4, 8))
    assert list(leader.followers) == [3]
    leader.follow(Registration((1, 2, 3), (1,), ME, 4, 9))
    assert leader.followers[2].end_offset == -1


def test_the_low_watermark_is_of_those_who_take_part(cluster: Cluster) -> None:
    leader = leading(cluster)
    leader.fetched(2, 10, 6, 20, NOW)
    assert leader.low_watermark == -1
    leader.fetched(3, 10, 4, 30, NOW)
    assert leader.low_watermark == 4
    cluster.out.add(3)
    assert leader.low_watermark == 6
