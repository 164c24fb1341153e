"""Several whole nodes in the test's process, on one loop, with real sockets and files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.config.broker_config import broker_config
from penstock.node.node import Node
from penstock.peers.connection import Address, PeerConnection
from penstock.serving.broker import Broker
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.process import free_port
from unit.serving.rig import until

START_SECONDS_MAX = 60.0


class Nodes:
    """Nodes 1 to `count`, started and stopped one by one."""

    def __init__(self, root: Path, count: int, **settings: str) -> None:
        self.root = root
        self.addresses = {i: Address("127.0.0.1", free_port()) for i in range(1, count + 1)}
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.running: dict[int, Node] = {}
        self.lost: list[Node] = []
        self.peers: list[PeerConnection] = []

    def make(self, node_id: int) -> Node:
        voters = ",".join(f"{i}@{address}" for i, address in self.addresses.items())
        config = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{self.addresses[node_id]}",
            "log.dirs": str(self.root / str(node_id)),
            "controller.quorum.voters": voters,
            "penstock.http.listen": "",
            **self.settings,
        }
        node = self.running[node_id] = Node(broker_config(config))
        return node

    async def start(self, *node_ids: int) -> None:
        async with asyncio.timeout(START_SECONDS_MAX):
            await asyncio.gather(*(self.make(i).start() for i in node_ids or self.addresses))

    async def stop(self, node_id: int) -> None:
        await self.running.pop(node_id).stop()

    async def lose(self, node_id: int) -> None:
        """To the others it is as if the process had died; what is left of it is stopped later."""
        node = self.running.pop(node_id)
        self.lost.append(node)
        assert node._lifecycle is not None
        node._lifecycle.stop()
        for server in node._listening.servers if node._listening else ():
            assert server._server is not None
            server._server.close()
            for connection in list(server.connections):
                connection.abort()
        assert node._peers is not None
        node._peers.close()

    def broker(self, node_id: int) -> Broker:
        broker = self.running[node_id]._broker
        assert broker is not None
        return broker

    @property
    def controller(self) -> int:
        """The active controller; 0 while there is none."""
        active = [i for i in self.running if self.broker(i).controller.is_active]
        return active[0] if active else 0

    @property
    def others(self) -> list[int]:
        return [i for i in self.running if i != self.controller]

    async def peer(self, node_id: int) -> PeerConnection:
        """A client's connection to one node."""
        made = PeerConnection(self.addresses[node_id], "test", lambda _: None)
        await made.connect()
        self.peers.append(made)
        return made

    async def create(self, node_id: int, *names: str, replicas: int = 3) -> Any:
        topics = [
            CreatableTopic(name=name, num_partitions=3, replication_factor=replicas)
            for name in names
        ]
        peer = await self.peer(node_id)
        return await peer.send(CreateTopicsRequest(topics=topics, timeout_ms=5_000))

    async def all_know(self, topic: str) -> None:
        await until(lambda: all(topic in self.broker(i).metadata.topics for i in self.running))


@asynccontextmanager
async def nodes(root: Path, count: int = 3, **settings: str) -> AsyncIterator[Nodes]:
    made = Nodes(root, count, **settings)
    try:
        await made.start()
        yield made
    finally:
        for peer in made.peers:
            peer.close()
        left = [*made.running.values(), *made.lost]
        for node in left:
            node.hurry()
        await asyncio.gather(*(node.stop() for node in left))
