"""Requests and answers with very many elements: others are served in between, order is kept."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.api.registry import APIS, DECODED_AT_ONCE_BYTES_MAX, ELEMENTS_AT_ONCE_MAX
from penstock.base.errors import ErrorCode
from penstock.net import turn
from penstock.wire.apis import ApiKey
from penstock.wire.codegen import ELEMENTS_PER_STEP
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until

MANY = 2_000
"""More than is decoded, handled or encoded at once."""


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", -1)


class Loop:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


def with_node(tmp_path: Path, test: Callable[[Rig, Peer], Any]) -> None:
    async def whole() -> None:
        async with running(tmp_path) as rig:
            await test(rig, await rig.peer())
            assert rig.server.memory.used_bytes == 0

    run(whole)


def log_dirs(partitions: int) -> AlterReplicaLogDirsRequest:
    topic = AlterReplicaLogDirTopic(name="t", partitions=list(range(partitions)))
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/", topics=[topic])])


def offsets(partitions: int) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=wanted)])


def test_a_large_request_is_decoded_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []
    api = APIS[ApiKey.LIST_OFFSETS]

    async def test(rig: Rig, peer: Peer) -> None:
        loop = Loop()

        def handle(*_: object) -> Any:
            began.append(loop.turns)
            return api.response()

        monkeypatch.setitem(APIS, ApiKey.LIST_OFFSETS, replace(api, handle=handle))
        request = offsets(DECODED_AT_ONCE_BYTES_MAX // 10)
        sent = loop.turns
        peer.deliver(request, 7)
        assert not began
        assert rig.server.memory.used_bytes > DECODED_AT_ONCE_BYTES_MAX
        await peer.receive()
        assert began[0] - sent >= DECODED_AT_ONCE_BYTES_MAX // 10 // ELEMENTS_PER_STEP

    with_node(tmp_path, test)


def test_a_large_request_that_cannot_be_read_closes_its_connection(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        raw = peer.frame(offsets(DECODED_AT_ONCE_BYTES_MAX // 10), 7)[4:-100]
        peer.send_raw(struct.pack(">i", len(raw)) + raw)
        assert await peer.is_closed()
        assert rig.server.refused_total == {"protocol": 1}

    with_node(tmp_path, test)


def test_what_stands_behind_a_large_request_waits_for_it(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        topic = await rig.topic()
        large = offsets(DECODED_AT_ONCE_BYTES_MAX // 10)
        peer.deliver(large, 7)
        peer.deliver(ApiVersionsRequest(), 0)
        assert len(peer.inside.pending) == 1
        answer = await peer.receive()
        assert len(answer.topics[0].partitions) == len(large.topics[0].partitions)
        assert (await peer.receive()).error_code == 0
        assert (await peer.produce(topic)).error_code == 0

    with_node(tmp_path, test)


def test_a_peer_that_goes_while_its_request_is_decoded(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        peer.deliver(offsets(DECODED_AT_ONCE_BYTES_MAX // 10), 7)
        peer.close()
        await until(lambda: not rig.server.connections and not rig.server.memory.used_bytes)

    with_node(tmp_path, test)


def test_a_large_answer_is_encoded_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.wire.messages.list_groups import ListedGroup

    api = APIS[ApiKey.LIST_GROUPS]
    groups = [ListedGroup(group_id=str(i)) for i in range(MANY)]

    async def test(rig: Rig, peer: Peer) -> None:
        loop = Loop()
        handle = lambda *_: ListGroupsResponse(groups=groups)  # noqa: E731
        monkeypatch.setitem(APIS, ApiKey.LIST_GROUPS, replace(api, handle=handle))
        sent = loop.turns
        peer.deliver(ListGroupsRequest(), 4)
        assert not peer.inside.pending[0].done
        answer = await peer.receive()
        assert answer.groups == groups
        assert loop.turns - sent >= MANY // ELEMENTS_PER_STEP

    with_node(tmp_path, test)


WIDE = [
    (offsets(MANY), 7),
    (
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[OffsetForLeaderPartition(partition=i) for i in range(MANY)],
                )
            ],
        ),
        4,
    ),
    (
        DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=list(range(MANY)))]
        ),
        0,
    ),
    (log_dirs(MANY), 2),
    (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=2, resource_name=f"t{i}", configuration_keys=None
                )
                for i in range(MANY)
            ]
        ),
        4,
    ),
    (MetadataRequest(topics=[MetadataRequestTopic(name=f"t{i}") for i in range(MANY)]), 12),
    (FindCoordinatorRequest(key_type=9, coordinator_keys=[str(i) for i in range(MANY)]), 4),
    (DescribeGroupsRequest(groups=[str(i) for i in range(MANY)]), 5),
    (
        DeleteRecordsRequest(
            timeout_ms=1_000,
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[DeleteRecordsPartition(partition_index=i) for i in range(MANY)],
                )
            ],
        ),
        2,
    ),
]


@pytest.mark.parametrize(("request_", "version"), WIDE, ids=lambda v: type(v).__name__)
def test_many_elements_are_handled_in_turns(tmp_path: Path, request_: Any, version: int) -> None:
    """Between any two turns no more is done than may be done at once."""

    async def test(rig: Rig, peer: Peer) -> None:
        loop, other = Loop(), await rig.peer()
        sent = loop.turns
        peer.deliver(request_, version)
        assert peer.inside.pending
        assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
        assert peer.inside.pending  # the other one did not have to wait for it
        answer = await peer.receive()
        assert len(list(answer.each_code())) >= MANY
        assert loop.turns - sent >= MANY / 100

    with_node(tmp_path, test)


def test_few_elements_are_answered_at_once(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        await rig.topic()
        for request, version in ((log_dirs(ELEMENTS_AT_ONCE_MAX - 10), 2), (offsets(1), 7)):
            peer.deliver(request, version)
            assert not peer.inside.pending
            await peer.receive()

    with_node(tmp_path, test)


def test_the_folders_of_many_partitions_are_described_in_turns(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        await rig.topic("wide", MANY)
        loop = Loop()
        sent = loop.turns
        answer = await peer.call(DescribeLogDirsRequest(topics=None), 4)
        [folder] = answer.results
        assert [len(topic.partitions) for topic in folder.topics] == [MANY]
        assert loop.turns - sent >= MANY / 100

    with_node(tmp_path, test)


def test_one_topic_with_many_partitions_is_encoded_in_turns(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        await rig.topic("wide", MANY)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        loop = Loop()
        sent = loop.turns
        [topic] = (await peer.call(request, 12)).topics
        assert [p.partition_index for p in topic.partitions] == list(range(MANY))
        assert loop.turns - sent >= MANY / ELEMENTS_PER_STEP
        peer.deliver(request, 12)
        assert not peer.inside.pending  # what was encoded is kept
        assert (await peer.receive()).topics == [topic]

    with_node(tmp_path, test)


def test_a_topic_that_changes_while_it_is_encoded_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        # Wide requests have no further turn until the topic is gone, however slow the disk is.
        may_go_on = asyncio.Event()
        wait = turn._Queue.wait

        async def held(queue: turn._Queue) -> None:
            await may_go_on.wait()
            await wait(queue)

        monkeypatch.setattr(turn._Queue, "wait", held)
        await rig.topic("wide", MANY)
        named = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        for request in (named, MetadataRequest(topics=None)):
            may_go_on.clear()
            peer.deliver(request, 12)
            await until(lambda: rig.broker.topics.pieces._making is not None)
            await rig.delete_topic("wide")
            assert peer.inside.pending
            may_go_on.set()
            answer = await peer.receive()
            codes = [topic.error_code for topic in answer.topics]
            gone = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] if request is named else []
            assert codes == gone
            await rig.topic("wide", MANY)

    with_node(tmp_path, test)
