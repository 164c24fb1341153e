"""Group shards follow the leadership of their partitions, and answers that cannot be committed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.base.errors import ErrorCode
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.metadata.records import NO_LEADER, PartitionChangeRecord
from unit.coordinating.test_group_coordinator import (
    FEW,
    commit,
    committed,
    driver_of,
    find,
    settled,
)
from unit.net.served import run
from unit.serving.rig import ANSWER_SECONDS_MAX, Rig, running, until


async def elect(rig: Rig, group: str, leader: int) -> None:
    """Name the leader of the group's partition, which begins a new leader epoch."""
    index = rig.broker.groups.partition_of(group)
    assert index is not None
    topic = rig.broker.metadata.topics[OFFSETS_TOPIC]
    record = PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=leader)
    await rig.broker.controller.submit(lambda _: ([record], None))


def test_a_new_leader_epoch_begins_with_a_replay(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            assert await commit(peer, "g", 5) == ErrorCode.NONE
            before = driver_of(rig, "g")
            await elect(rig, "g", rig.broker.node_id)
            assert await settled(peer, "g") == 5
            after = driver_of(rig, "g")
            assert after is not before
            assert after.leader_epoch == before.leader_epoch + 1

    run(test)


def test_a_shard_of_another_leader_epoch_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            assert await commit(peer, "g", 5) == ErrorCode.NONE
            driver = driver_of(rig, "g")
            assert driver._partition is not None
            end = driver._partition.log.log_end_offset
            driver.leader_epoch -= 1
            assert await commit(peer, "g", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert driver._partition.log.log_end_offset == end

    run(test)


def test_without_leadership_there_is_no_coordinator(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            assert await commit(peer, "g", 5) == ErrorCode.NONE
            await elect(rig, "g", NO_LEADER)
            assert (await committed(peer, "g"))[0] == ErrorCode.NOT_COORDINATOR
            [found] = await find(peer, "g")
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await elect(rig, "g", rig.broker.node_id)
            assert await settled(peer, "g") == 5

    run(test)


def test_an_answer_that_is_not_committed_in_time_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        settings = FEW | {"offsets_commit_timeout_ms": "50", "log_flush_interval_messages": "1"}
        async with running(tmp_path, **settings) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while await commit(peer, "g", 5) != ErrorCode.NONE:
                    pass  # a busy machine may need longer than that
            shard = driver_of(rig, "g").shard
            with rig.held_flushes():
                assert await commit(peer, "g", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                # Reading rests on what is not committed, so it waits and is refused as well.
                assert (await committed(peer, "g"))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
            # The record was only late: the shard was right all along.
            assert await settled(peer, "g") == 6
            assert driver_of(rig, "g").shard is shard

    run(test)


def test_writes_are_turned_away_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            assert await commit(peer, "g", 5) == ErrorCode.NONE
            index = rig.broker.groups.partition_of("g")
            assert index is not None
            partition = await until(lambda: rig.broker.replicas.opened(OFFSETS_TOPIC, index))
            partition.under_min_isr = True
            assert await commit(peer, "g", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await committed(peer, "g") == (ErrorCode.NONE, 5)
            partition.under_min_isr = False
            assert await commit(peer, "g", 6) == ErrorCode.NONE

    run(test)
