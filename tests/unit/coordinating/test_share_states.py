"""States of share-partitions in one node: the five requests, the persister, pruning, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import uuid_text
from penstock.coordinating.share_persister import ShareSummary
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
