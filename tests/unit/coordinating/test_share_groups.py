"""Share groups in one node: a member and its partitions, administrators, level 0."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinating.share_persister import ShareSummary
from penstock.metadata.features import SHARE_VERSION
from penstock.wire.messages import alter_share_group_offsets as alter
from penstock.wire.messages import delete_share_group_offsets as delete
from penstock.wire.messages import describe_share_group_offsets as describe
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.calls import RawTopic
from unit.coordinating.test_group_coordinator import find
from unit.serving.rig import Peer, Rig, running

SOON_SECONDS = 5
SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "share_coordinator_state_topic_num_partitions": "2",
    "group_share_assignment_interval_ms": "0",
}


async def beat(peer: Peer, epoch: int, topics: list[str] | None = None) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
    )
    return await peer.call(request, 1)


def given(answer: Any) -> dict[bytes, list[int]]:
    return {topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions}


async def member(peer: Peer, topic: RawTopic) -> int:
    """The epoch of a member that has its partitions."""
    await find(peer, "g")
    async with asyncio.timeout(20):
        while (found := await beat(peer, 0, [topic.name])).error_code:
            await asyncio.sleep(0.01)
        while not (found.assignment and given(found) == {topic.id: [0, 1]}):
            found = await beat(peer, found.member_epoch)
            await asyncio.sleep(0.01)
    return int(found.member_epoch)


async def move(peer: Peer, name: str, *starts: int) -> Any:
    topic = alter.AlterShareGroupOffsetsRequestTopic(
        topic_name=name,
        partitions=[
            alter.AlterShareGroupOffsetsRequestPartition(partition_index=n, start_offset=offset)
            for n, offset in enumerate(starts)
        ],
    )
    return await peer.call(alter.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]), 0)


async def forget(peer: Peer, *names: str) -> Any:
    topics = [delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return await peer.call(delete.DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0)


async def offsets(peer: Peer, names: dict[str, list[int]] | None = None) -> Any:
    """Start, lag and code of each partition that is described, by topic."""
    topics = None if names is None else [
        describe.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
        for name, numbers in names.items()
    ]  # fmt: skip
    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
    answer = await peer.call(describe.DescribeShareGroupOffsetsRequest(groups=[group]), 1)
    [found] = answer.groups
    assert found.error_code == 0
    return {
        topic.topic_name: [(p.start_offset, p.lag, p.error_code) for p in topic.partitions]
        for topic in found.topics
    }


async def summaries(rig: Rig, topic: RawTopic) -> list[Any]:
    keys = [(topic.id, 0), (topic.id, 1)]
    found = await rig.broker.persister.summary("g", keys)
    return [found[key] for key in keys]


def test_a_partition_that_is_not_there_is_described_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, topic = await rig.peer(), await rig.topic(partitions=2)
            await member(peer, topic)
            async with asyncio.timeout(SOON_SECONDS):
                found = await offsets(peer, {topic.name: [0, 2, -1]})
            assert found == {topic.name: [(-1, -1, 0)] * 3}

    asyncio.run(run())


def test_the_life_of_a_share_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, topic = await rig.peer(), await rig.topic(partitions=2)
            epoch = await member(peer, topic)
            begun = await summaries(rig, topic)
            assert [s.start_offset for s in begun] == [-1, -1]
            [shown] = (await peer.call(ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups
            assert (shown.group_state, shown.group_epoch) == ("Stable", epoch)
            assert [m.member_id for m in shown.members] == ["m"]
            assert await offsets(peer) == {topic.name: [(-1, -1, 0)] * 2}
            not_empty = ErrorCode.NON_EMPTY_GROUP
            assert (await move(peer, topic.name, 1)).error_code == not_empty
            assert (await forget(peer, topic.name)).error_code == not_empty
            delete_it = DeleteGroupsRequest(groups_names=["g"])
            [refused] = (await peer.call(delete_it, 2)).results
            assert refused.error_code == not_empty

            assert (await beat(peer, -1)).error_code == 0
            assert (await peer.produce(topic)).error_code == 0
            moved = await move(peer, topic.name, 0, 5, 9)
            codes = [p.error_code for p in moved.responses[0].partitions]
            assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert [s.start_offset for s in await summaries(rig, topic)] == [0, 5]
            found = await offsets(peer, {topic.name: [0, 1], "gone": [0]})
            assert found["gone"] == [(-1, -1, 0)]
            assert [start for start, _, _ in found[topic.name]] == [0, 5]
            assert found[topic.name][0][1] in (1, -1), "the lag, once the count is known"

            [forgot, missed] = (await forget(peer, topic.name, "gone")).responses
            assert (forgot.topic_id, forgot.error_code) == (topic.id, 0)
            assert missed.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await offsets(peer) == {}

            await member(peer, topic)
            assert (await beat(peer, -1)).error_code == 0
            [deleted] = (await peer.call(delete_it, 2)).results
            assert deleted.error_code == 0
            new = ShareSummary(0, 0, -1, -1)
            assert [s.start_offset for s in await summaries(rig, topic)] == [new.start_offset] * 2
            [gone] = (await peer.call(ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups
            assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            [again] = (await peer.call(delete_it, 2)).results
            assert again.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(run())


def test_a_group_is_made_by_moving_its_offsets(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, topic = await rig.peer(), await rig.topic(partitions=2)
            await find(peer, "g")
            async with asyncio.timeout(20):
                while (await move(peer, topic.name, 3)).error_code:
                    await asyncio.sleep(0.01)
            assert (await offsets(peer))[topic.name][0][0] == 3
            await member(peer, topic)
            assert [s.start_offset for s in await summaries(rig, topic)] == [3, -1]

    asyncio.run(run())


def test_below_level_1_nothing_of_it_is_served(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer, topic = await rig.peer(), await rig.topic(partitions=2)
            rig.broker.metadata.features.pop(SHARE_VERSION)
            unsupported = ErrorCode.UNSUPPORTED_VERSION
            assert (await beat(peer, 0, [topic.name])).error_code == unsupported
            [shown] = (await peer.call(ShareGroupDescribeRequest(group_ids=["g"]), 1)).groups
            assert shown.error_code == unsupported
            assert (await move(peer, topic.name, 0)).error_code == unsupported
            assert (await forget(peer, topic.name)).error_code == unsupported
            group = describe.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
            answer = await peer.call(describe.DescribeShareGroupOffsetsRequest(groups=[group]), 0)
            assert answer.groups[0].error_code == unsupported

    asyncio.run(run())
