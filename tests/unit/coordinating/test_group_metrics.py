"""What a scrape shows of groups: protocols, states, members, rebalances; and what it costs."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.coordinating.group_metrics import GroupMetrics
from penstock.coordinator.classic import ClassicGroup
from penstock.coordinator.classic.member import ClassicMember
from penstock.observe.metrics import Registry
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest
from support.group_calls import (
    CONSUMER_HEARTBEAT,
    JOIN,
    LEAVE,
    MEMBER_ID_REQUIRED,
    SYNC,
    join_request,
)
from unit.coordinating.test_group_coordinator import commit, driver_of, find, settled
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until

SETTINGS = {"offsets_topic_num_partitions": "4", "group_initial_rebalance_delay_ms": "0"}
GROUPS = 10_000
PART_SECONDS_MAX = 0.05
"""Processor time of the loop between two pauses; a part takes about a millisecond."""

NOTHING = {
    **{
        ("penstock_groups", "classic", state): 0
        for state in ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
    },
    **{
        ("penstock_groups", "consumer", state): 0
        for state in ("Empty", "Assigning", "Reconciling", "Stable")
    },
    **{("penstock_groups", "share", state): 0 for state in ("Empty", "Stable")},
    **{
        ("penstock_groups", "streams", state): 0
        for state in ("Empty", "NotReady", "Assigning", "Reconciling", "Stable")
    },
    **{
        (name, protocol): 0
        for name in ("penstock_groups_members", "penstock_groups_rebalances_total")
        for protocol in ("classic", "consumer", "share", "streams")
    },
}


def shown(rig: Rig) -> dict[tuple[str, ...], float]:
    """Every number about groups, by name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for reading in GroupMetrics(Registry(), rig.broker.groups)._collect()
        for sample in reading.samples
    }


async def join(peer: Peer, group: str) -> tuple[str, int]:
    """A lone classic member's id and generation."""
    answer = await peer.call(join_request(group), JOIN)
    assert answer.error_code == MEMBER_ID_REQUIRED
    answer = await peer.call(join_request(group, answer.member_id), JOIN)
    assert answer.error_code == 0
    return answer.member_id, answer.generation_id


async def sync(peer: Peer, group: str, member_id: str, generation: int) -> None:
    """The member, which leads, gives nobody anything."""
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert (await peer.call(request, SYNC)).error_code == 0


def test_groups_are_counted_by_protocol_and_state(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, _ = await rig.peer(), await rig.topic()
            assert shown(rig) == NOTHING
            await find(peer, "stores")
            assert await settled(peer, "stores") == -1
            assert await commit(peer, "stores", 0) == 0
            expected = NOTHING | {("penstock_groups", "classic", "Empty"): 1}
            assert shown(rig) == expected

            member_id, generation = await join(peer, "joins")
            expected[("penstock_groups", "classic", "CompletingRebalance")] = 1
            expected[("penstock_groups_members", "classic")] = 1
            assert shown(rig) == expected
            await sync(peer, "joins", member_id, generation)
            expected[("penstock_groups", "classic", "CompletingRebalance")] = 0
            expected[("penstock_groups", "classic", "Stable")] = 1
            expected[("penstock_groups_rebalances_total", "classic")] = 1
            assert shown(rig) == expected

            beat = ConsumerGroupHeartbeatRequest(
                group_id="beats",
                member_id="m",
                rebalance_timeout_ms=10_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            assert (await peer.call(beat, CONSUMER_HEARTBEAT)).error_code == 0
            expected[("penstock_groups", "consumer", "Stable")] = 1
            expected[("penstock_groups_members", "consumer")] = 1
            expected[("penstock_groups_rebalances_total", "consumer")] = 1
            assert shown(rig) == expected

            leaver = MemberIdentity(member_id=member_id)
            await peer.call(LeaveGroupRequest(group_id="joins", members=[leaver]), LEAVE)
            expected[("penstock_groups", "classic", "Stable")] = 0
            expected[("penstock_groups", "classic", "Empty")] = 2
            expected[("penstock_groups_members", "classic")] = 0
            assert shown(rig) == expected

    run(test)


def test_rebalances_stay_counted_when_a_shard_is_replayed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, _ = await rig.peer(), await rig.topic()
            await find(peer, "g")
            assert await settled(peer, "g") == -1
            await sync(peer, "g", *await join(peer, "g"))
            before = shown(rig)
            driver_of(rig, "g").fail("a test wants it")
            assert shown(rig)["penstock_groups", "classic", "Stable"] == 0, "it is not loaded"
            await until(lambda: shown(rig) == before)
            assert before["penstock_groups_rebalances_total", "classic"] == 1

    run(test)


def test_very_many_groups_are_counted_a_part_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, _ = await rig.peer(), await rig.topic()
            await find(peer, "g")
            assert await settled(peer, "g") == -1
            shard = driver_of(rig, "g").shard
            for number in range(GROUPS):
                name = f"g{number}"
                group = shard.groups[name] = ClassicGroup(name, shard.environment)
                member = ClassicMember("m", None, "c", "h", 1, 1, {"range": b""}, b"")
                group.restore(
                    [member],
                    generation=1,
                    protocol_type="other",
                    protocol_name="range",
                    leader_id="m",
                    since_ms=0,
                )
            slowest, parts, began = 0.0, 0, time.thread_time()
            for _ in GroupMetrics(Registry(), rig.broker.groups)._collect():
                now = time.thread_time()
                slowest, parts, began = max(slowest, now - began), parts + 1, now
            assert parts >= 2 * GROUPS // 1_000
            assert slowest < PART_SECONDS_MAX
            found = shown(rig)
            assert found["penstock_groups", "classic", "Stable"] == GROUPS
            assert found["penstock_groups_members", "classic"] == GROUPS
            shard.groups.clear()

    run(test)
