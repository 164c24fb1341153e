"""What every simulated client has: connections to nodes and a picture of where leaders are.

Retries are the caller's. Errors of transport come as `PeerError`, error codes as they are.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.peers.connection import Address, PeerConnection
from penstock.peers.errors import PeerError, PeerUnreachable
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.schema import Message

REQUEST_TIMEOUT_S = 8.0
_NOWHERE = Address("", 0)


class Leader(NamedTuple):
    node_id: int
    epoch: int


class Wire:
    """One client's connections, made when they are wanted."""

    def __init__(self, name: str, bootstrap: list[Address]) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.brokers: dict[int, Address] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.leaders: dict[tuple[str, int], Leader] = {}
        self._open: dict[Address, PeerConnection] = {}
        self._turn = 0

    async def call(
        self,
        address: Address,
        request: Message,
        version: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        return await (await self._connection(address)).send(request, version, timeout_s)

    async def _connection(self, address: Address) -> PeerConnection:
        connection = self._open.get(address)
        if connection is None or connection.closed:
            connection = PeerConnection(address, self.name, lambda _: None)
            await connection.connect()
            self._open[address] = connection
        return connection

    async def connection(self, node_id: int) -> PeerConnection:
        """A connection to a node, for who sends more than one request at a time."""
        address = self.brokers.get(node_id)
        if address is None:
            raise PeerUnreachable(f"no address of node {node_id} is known")
        return await self._connection(address)

    def disconnect(self, node_id: int) -> None:
        """Close the connection to a node, if there is one."""
        connection = self._open.pop(self.brokers.get(node_id, _NOWHERE), None)
        if connection is not None:
            connection.close()

    async def call_node(self, node_id: int, request: Message, version: int | None = None) -> Any:
        return await (await self.connection(node_id)).send(request, version, REQUEST_TIMEOUT_S)

    async def call_any(self, request: Message, version: int | None = None) -> Any:
        """Ask one node after the other, beginning with another each time."""
        addresses = list(dict.fromkeys([*self.brokers.values(), *self.bootstrap]))
        self._turn += 1
        error: PeerError | None = None
        for i in range(len(addresses)):
            try:
                return await self.call(
                    addresses[(self._turn + i) % len(addresses)], request, version
                )
            except PeerError as e:
                error = e
        assert error is not None
        raise error

    async def refresh(self, *topics: str) -> None:
        """Learn leaders anew; a node that is behind may tell of an older epoch, which is left."""
        wanted = [MetadataRequestTopic(name=name) for name in topics]
        answer = await self.call_any(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        )
        for broker in answer.brokers:
            self.brokers[broker.node_id] = Address(broker.host, broker.port)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE:
                self._take(topic)

    def _take(self, topic: Any) -> None:
        if self.topic_ids.get(topic.name) != topic.topic_id:
            self.topic_ids[topic.name] = topic.topic_id
            for key in [key for key in self.leaders if key[0] == topic.name]:
                del self.leaders[key]
        for p in topic.partitions:
            known = self.leaders.get((topic.name, p.partition_index))
            if known is None or p.leader_epoch >= known.epoch:
                leader = Leader(p.leader_id, p.leader_epoch)
                self.leaders[topic.name, p.partition_index] = leader

    async def leader_of(self, topic: str, partition: int) -> Leader | None:
        """The leader as far as it is known; asks when it is not."""
        leader = self.leaders.get((topic, partition))
        if leader is None or leader.node_id < 0 or leader.node_id not in self.brokers:
            await self.refresh(topic)
            leader = self.leaders.get((topic, partition))
        return None if leader is None or leader.node_id < 0 else leader

    def forget(self, topic: str, partition: int) -> None:
        """What is known of the leader is wrong; older metadata is not taken for all that."""
        known = self.leaders.get((topic, partition))
        if known is not None:
            self.leaders[topic, partition] = Leader(-1, known.epoch)


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)
