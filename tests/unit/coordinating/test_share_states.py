"""States of share-partitions in one node: the five requests, the persister, pruning, restarts."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import uuid_text
from penstock.coordinating.share_persister import ShareSummary
from penstock.coordinator.share_state import ShareStateShard
from penstock.metadata.names import SHARE_STATE_TOPIC
from penstock.share.types import ShareKey, ShareState, StateBatch
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from unit.serving.rig import Peer, Rig, running, until

SETTINGS = {"share_coordinator_state_topic_num_partitions": "3"}
ACKED = 2


async def find(peer: Peer, key: str, version: int = 6) -> Any:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    [found] = (await peer.call(request, version)).coordinators
    return found


async def begun(rig: Rig, *partitions: int, group: str = "g") -> list[ShareKey]:
    """Share-partitions of a new topic, with their state initialised."""
    topic = await rig.topic(f"of-{group}", partitions=max(partitions) + 1)
    keys = [ShareKey(group, topic.id, index) for index in partitions]
    codes = await rig.broker.persister.initialize(group, {key[1:]: (1, 0) for key in keys})
    assert set(codes.values()) == {ErrorCode.NONE}
    return keys


async def written(
    rig: Rig, key: ShareKey, *batches: StateBatch, start: int = -1, epoch: int = 1, leader: int = 0
) -> ErrorCode:
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    rig.broker.persister.write(
        key, epoch, leader, start, 0, batches, lambda code, _why: done.set_result(code)
    )
    return await done


def test_the_coordinator_is_found_by_the_key_of_a_share_partition(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            id_ = uuid_text(topic.id)
            async with asyncio.timeout(20):
                while (found := await find(peer, f"g:{id_}:0")).error_code:
                    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert found.node_id == rig.broker.node_id
            assert (await find(peer, f"a:b:{id_}:0")).error_code == 0
            for wrong in ("", "g", f"g:{id_}", f" :{id_}:0", "g:x:0", f"g:{id_}:x"):
                assert (await find(peer, wrong)).error_code == ErrorCode.INVALID_REQUEST
            old = await find(peer, f"g:{id_}:0", 5)
            assert old.error_code == ErrorCode.INVALID_REQUEST
            log = rig.broker.replicas.leader_of(SHARE_STATE_TOPIC, 0).log
            assert log.config.cleanup_policy == {"delete"}
            assert log.config.retention_ms == -1
            assert log.config.retention_bytes == -1

    asyncio.run(run())


def test_the_first_question_makes_the_topic(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            keys = await begun(rig, *range(8))
            image = rig.broker.metadata
            assert len(image.topics[SHARE_STATE_TOPIC].partitions) == 3
            assert len({rig.broker.share_states.index_of(key) for key in keys}) > 1
            found = await rig.broker.persister.summary("g", [key[1:] for key in keys])
            assert set(found.values()) == {ShareSummary(1, 0, 0, 0)}

    asyncio.run(run())


def test_what_was_written_is_read(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            persister = rig.broker.persister
            [key] = await begun(rig, 0)
            first, second = StateBatch(0, 4, ACKED, 1), StateBatch(5, 9, 0, 2)
            assert await written(rig, key, first, second) is ErrorCode.NONE
            assert await persister.read(key, 3) == ShareState(1, 0, -1, [first, second])
            assert await written(rig, key, start=5, leader=2) is ErrorCode.FENCED_LEADER_EPOCH
            assert await written(rig, key, start=5, leader=3) is ErrorCode.NONE
            assert await written(rig, key, epoch=0, leader=3) is ErrorCode.FENCED_STATE_EPOCH
            assert await persister.read(key, 3) == ShareState(1, 5, -1, [second])
            with pytest.raises(ApiError) as refusal:
                await persister.read(key, 2)
            assert refusal.value.code is ErrorCode.FENCED_LEADER_EPOCH
            assert await persister.delete("g", [key[1:]]) == {key[1:]: ErrorCode.NONE}
            with pytest.raises(ApiError) as refusal:
                await persister.read(key, 3)
            assert refusal.value.code is ErrorCode.INVALID_REQUEST
            assert await persister.summary("g", [key[1:]]) == {key[1:]: ShareSummary(0, 0, -1, -1)}

    asyncio.run(run())


def log_of(rig: Rig, key: ShareKey) -> Any:
    index = rig.broker.share_states.index_of(key)
    assert index is not None
    return rig.broker.replicas.leader_of(SHARE_STATE_TOPIC, index).log


def shard_of(rig: Rig, key: ShareKey) -> ShareStateShard:
    index = rig.broker.share_states.index_of(key)
    assert index is not None
    return rig.broker.share_states._drivers[index].shard


def test_a_log_begins_where_its_oldest_newest_snapshot_stands(tmp_path: Path) -> None:
    few = {
        "share_coordinator_state_topic_num_partitions": "1",
        "share_coordinator_snapshot_update_records_per_snapshot": "3",
    }

    async def run() -> None:
        async with running(tmp_path, **few) as rig:
            cold, hot = await begun(rig, 0, 1)
            coordinator = rig.broker.share_states
            for offset in range(9):
                batch = StateBatch(offset, offset, ACKED, 1)
                assert await written(rig, hot, batch) is ErrorCode.NONE
            log = log_of(rig, cold)
            coordinator.prune()
            assert log.log_start_offset == 0  # the only snapshot of the cold one
            assert await written(rig, cold, start=7) is ErrorCode.NONE
            await rig.broker.persister.initialize("g", {cold[1:]: (2, 5)})
            coordinator.prune()
            assert log.log_start_offset == coordinator.pruned[0] > 8
            known = dict(shard_of(rig, hot).states)
        async with running(tmp_path, **few) as rig:
            await until(lambda: rig.broker.share_states.states() == 2)
            assert shard_of(rig, hot).states == known
            assert log_of(rig, hot).log_start_offset > 8
            found = await rig.broker.persister.read(hot, 0)
            assert found.batches == [StateBatch(0, 8, ACKED, 1)]

    asyncio.run(run())


def test_what_is_not_committed_prunes_nothing(tmp_path: Path) -> None:
    """The newest snapshot may yet be lost: until then the one before it counts."""
    settings = {**SETTINGS, "log_flush_interval_messages": "1"}

    async def run() -> None:
        async with running(tmp_path, **settings) as rig:
            [key] = await begun(rig, 0)
            with rig.held_flushes() as flushed:
                again = asyncio.ensure_future(
                    rig.broker.persister.initialize("g", {key[1:]: (2, 0)})
                )
                log = log_of(rig, key)
                await until(lambda: log.log_end_offset == 2)
                rig.broker.share_states.prune()
                await asyncio.sleep(0.05)
                assert log.log_start_offset == 0
                flushed.set()
                assert await again == {key[1:]: ErrorCode.NONE}
            assert log.log_start_offset == 1

    asyncio.run(run())


def test_states_of_deleted_topics_are_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            [gone] = await begun(rig, 0, group="a")
            [kept] = await begun(rig, 0, group="b")
            await rig.delete_topic("of-a")
            await until(lambda: rig.broker.share_states.states() == 1)
            assert kept in shard_of(rig, kept).states
            codes = await asyncio.wait_for(rig.broker.persister.summary("b", [kept[1:]]), 20)
            assert codes == {kept[1:]: ShareSummary(1, 0, 0, 0)}
        async with running(tmp_path, **SETTINGS) as rig:
            await until(lambda: rig.broker.share_states.states() == 1)
            assert gone not in shard_of(rig, gone).states

    asyncio.run(run())


def test_a_scrape_shows_what_the_coordinator_does(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            [key] = await begun(rig, 0)
            await written(rig, key, StateBatch(0, 0, ACKED, 1))
            await rig.broker.persister.initialize("g", {key[1:]: (2, 0)})
            rig.broker.share_states.prune()
            assert rig.node.metrics is not None
            text = rig.node.metrics.registry.render().decode()
            found = dict(
                re.findall(r"^penstock_share_coordinator_(\S+) (\S+)$", text, re.MULTILINE)
            )
            index = rig.broker.share_states.index_of(key)
            for name in ("states", "writes_total", "write_seconds_count"):
                assert float(found[name]) == 1
            assert float(found[f'pruned_offset{{partition="{index}"}}']) == 2

    asyncio.run(run())
