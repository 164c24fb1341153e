"""The persister between nodes: one request for all that a turn asks, coordinators that change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinating.share_persister import SharePersister, ShareSummary
from penstock.metadata.names import SHARE_STATE_TOPIC
from penstock.peers.errors import PeerLost
from penstock.peers.peers import Channel
from penstock.serving.broker import Broker
from penstock.share.types import ShareKey, StateBatch
from penstock.wire.schema import Message
from unit.serving.cluster_rig import Nodes, nodes

ONE = {
    "share_coordinator_state_topic_num_partitions": "1",
    "share_coordinator_state_topic_min_isr": "1",
}
GROUPS = ("g", "h")


class Cluster:
    """Three nodes, a topic, and a share coordinator for all of it."""

    def __init__(self, made: Nodes) -> None:
        self.nodes = made
        self.keys: list[ShareKey] = []

    async def begin(self) -> Cluster:
        await self.nodes.create(1, "t")
        await self.nodes.all_know("t")
        topic_id = self.nodes.broker(1).metadata.topics["t"].id
        partitions = {(topic_id, index): (1, 0) for index in range(3)}
        persister = self.nodes.broker(1).persister
        for group in GROUPS:
            codes = await persister.initialize(group, partitions)
            assert set(codes.values()) == {ErrorCode.NONE}
            self.keys += [ShareKey(group, *partition) for partition in partitions]
        await self.nodes.all_know(SHARE_STATE_TOPIC)
        return self

    def leader(self, node_id: int) -> int:
        """The share coordinator, as a node knows it."""
        return self.nodes.broker(node_id).metadata.topics[SHARE_STATE_TOPIC].partitions[0].leader

    @property
    def elsewhere(self) -> Broker:
        """A node that does not coordinate."""
        found = next(iter(self.nodes.running))
        return self.nodes.broker(
            next(i for i in self.nodes.running if i not in (self.leader(found), self.controller))
        )

    @property
    def controller(self) -> int:
        return self.nodes.controller


async def write_all(
    persister: SharePersister, keys: Iterable[ShareKey], batch: StateBatch
) -> list[ErrorCode]:
    """All in one turn of the loop."""
    loop = asyncio.get_running_loop()
    waiting = []
    for key in keys:
        done: asyncio.Future[ErrorCode] = loop.create_future()
        persister.write(key, 1, 0, -1, 0, [batch], lambda code, _, d=done: d.set_result(code))  # type: ignore[misc]
        waiting.append(done)
    return list(await asyncio.gather(*waiting))


def test_a_turn_is_one_request_for_each_group(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **ONE) as made:
            cluster = await Cluster(made).begin()
            broker = cluster.elsewhere
            send, sent = broker.peers.send, []

            async def counted(address: Any, channel: Channel, request: Message, *args: Any) -> Any:
                if channel is Channel.SHARE_STATE:
                    sent.append(request)
                return await send(address, channel, request, *args)

            broker.peers.send = counted  # type: ignore[method-assign, assignment]
            batch = StateBatch(0, 9, 2, 1)
            codes = await write_all(broker.persister, cluster.keys, batch)
            assert codes == [ErrorCode.NONE] * len(cluster.keys)
            assert len(sent) == len(GROUPS)
            for key in cluster.keys:
                assert (await broker.persister.read(key, 0)).batches == [batch]
            partitions = [key[1:] for key in cluster.keys[:3]]
            found = await broker.persister.summary("g", partitions)
            assert found == dict.fromkeys(partitions, ShareSummary(1, 0, 0, 0))
            codes_by_partition = await broker.persister.delete("g", partitions)
            assert set(codes_by_partition.values()) == {ErrorCode.NONE}
            found = await broker.persister.summary("g", partitions)
            assert found == dict.fromkeys(partitions, ShareSummary(0, 0, -1, -1))

    asyncio.run(test())


def test_a_write_that_nobody_answered_is_written_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **ONE) as made:
            cluster = await Cluster(made).begin()
            broker = cluster.elsewhere
            send, lost = broker.peers.send, 0

            async def losing(address: Any, channel: Channel, *args: Any) -> Any:
                nonlocal lost
                answer = await send(address, channel, *args)
                if channel is Channel.SHARE_STATE and lost < 2:
                    lost += 1
                    raise PeerLost("the answer was lost")
                return answer

            broker.peers.send = losing  # type: ignore[method-assign, assignment]
            batch = StateBatch(0, 9, 2, 1)
            [key] = cluster.keys[:1]
            assert await write_all(broker.persister, [key], batch) == [ErrorCode.NONE]
            assert lost == 2
            assert (await broker.persister.read(key, 0)).batches == [batch]

    asyncio.run(test())


def test_another_node_takes_over_what_was_written(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **ONE) as made:
            cluster = await Cluster(made).begin()
            before, after = StateBatch(0, 9, 2, 1), StateBatch(10, 19, 4, 5)
            persister = cluster.elsewhere.persister
            await write_all(persister, cluster.keys, before)
            await made.lose(cluster.leader(next(iter(made.running))))
            # Asked while nobody coordinates: it is asked again until somebody does.
            codes = await write_all(persister, cluster.keys, after)
            assert codes == [ErrorCode.NONE] * len(cluster.keys)
            for key in cluster.keys:
                assert (await persister.read(key, 0)).batches == [before, after]

    asyncio.run(test())


def test_whoever_waits_when_the_node_stops_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **ONE) as made:
            cluster = await Cluster(made).begin()
            broker = cluster.elsewhere
            begun, forever = asyncio.Event(), asyncio.Event()

            async def hangs(*_: Any) -> None:
                begun.set()
                await forever.wait()

            broker.peers.send = hangs  # type: ignore[method-assign, assignment]
            writes = asyncio.ensure_future(
                write_all(broker.persister, cluster.keys, StateBatch(0, 0, 2, 1))
            )
            await begun.wait()
            await broker.persister.stop()
            assert set(await writes) <= {
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NETWORK_EXCEPTION,
            }
            later = await write_all(broker.persister, cluster.keys[:1], StateBatch(0, 0, 2, 1))
            assert later == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    asyncio.run(test())
