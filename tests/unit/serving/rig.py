"""A whole node inside the test's process, its parts in reach, and a client on the same loop."""

from __future__ import annotations

import asyncio
import os
import resource
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from penstock.config.broker_config import broker_config
from penstock.net.connection import Connection
from penstock.net.server import Server
from penstock.node.node import Node
from penstock.partitions.partition import Partition
from penstock.serving.broker import Broker
from penstock.wire.apis import ApiKey, request_header_version, response_header_version
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from support import calls
from support.batches import batch
from support.calls import RawTopic
from support.raw import Closed, response_type

ANSWER_SECONDS_MAX = 20.0
QUIET_SECONDS = 0.08


class Peer:
    """One connection to the node, and the node's own end of it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inside: Connection
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.inside = inside
        self._sent: list[tuple[type[Any], int]] = []
        self._last_id = 0

    def frame(self, request: Any, version: int) -> bytes:
        """A request with its length before it; its answer is expected from now on."""
        kind = type(request)
        self._last_id += 1
        self._sent.append((kind, version))
        header = RequestHeader(
            request_api_key=kind.API_KEY,
            request_api_version=version,
            correlation_id=self._last_id,
            client_id="peer",
        )
        header_version = request_header_version(ApiKey(kind.API_KEY), version)
        payload = bytes(header.encode(header_version)) + bytes(request.encode(version))
        return struct.pack(">i", len(payload)) + payload

    def send(self, request: Any, version: int) -> None:
        self._writer.write(self.frame(request, version))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def deliver(self, request: Any, version: int) -> None:
        """Has the node take the request in within this very turn of the loop."""
        self.inside.data_received(self.frame(request, version))

    async def receive(self) -> Any:
        """The next answer; `Closed` when the node hangs up."""
        kind, version = self._sent.pop(0)
        payload = await self.receive_payload()
        key = ApiKey(kind.API_KEY)
        _, at = ResponseHeader.decode_from(payload, 0, response_header_version(key, version))
        return response_type(kind).decode(payload[at:], version)

    async def receive_payload(self) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Closed(str(e)) from None

    async def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return await self.receive()

    async def silent(self, seconds: float = QUIET_SECONDS) -> bool:
        """Whether nothing comes for a while; what comes stays to be received."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await asyncio.sleep(seconds)
        return not self._reader._buffer and not self._reader.at_eof()  # type: ignore[attr-defined]

    async def is_closed(self) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return not await self._reader.read(1)
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.transport.abort()

    # -- what most tests ask for -------------------------------------------------------------------

    async def produce(self, topic: RawTopic, records: bytes | None = None, **how: Any) -> Any:
        """Sends records to one partition; that partition's answer."""
        version = how.pop("version", 12)
        return one(await self.call(produce_request(topic, records, version, **how), version))

    async def fetch(self, topic: RawTopic, offset: int = 0, **how: Any) -> Any:
        """Fetches one partition; that partition's answer."""
        version = how.pop("version", 16)
        offsets = {how.pop("partition", 0): offset}
        answer = await self.call(calls.fetch_request([(topic, offsets)], version, **how), version)
        assert answer.error_code == 0
        [of_topic] = answer.responses
        [of_partition] = of_topic.partitions
        return of_partition


def produce_request(
    topic: RawTopic,
    records: bytes | None,
    version: int = 12,
    *,
    timeout_ms: int = 10_000,
    **how: Any,
) -> Any:
    request = calls.produce_request(
        topic, batch([b"v"]) if records is None else records, version, **how
    )
    request.timeout_ms = timeout_ms
    return request


def one(answer: Any) -> Any:
    """The only partition of a Produce answer."""
    [of_topic] = answer.responses
    [of_partition] = of_topic.partition_responses
    return of_partition


class Rig:
    def __init__(self, node: Node) -> None:
        self.node = node
        assert node._broker is not None
        self.broker: Broker = node._broker
        assert node._listening is not None
        self.server: Server = node._listening.servers[0]
        self._peers: list[Peer] = []
        self._stopping: asyncio.Task[None] | None = None

    def stop(self) -> asyncio.Task[None]:
        """Begins to stop the node, as the first SIGTERM does."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self.node.stop())
        return self._stopping

    async def peer(self) -> Peer:
        host, port = self.node.kafka_address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
        address = writer.get_extra_info("sockname")
        inside = await until(lambda: self._inside(address))
        made = Peer(reader, writer, inside)
        self._peers.append(made)
        return made

    def _inside(self, address: tuple[str, int]) -> Connection | None:
        """The node's end of the connection from `address`."""
        for connection in self.server.connections:
            transport = connection._transport
            if transport is not None and transport.get_extra_info("peername") == address:
                return connection
        return None

    async def topic(self, name: str = "t", partitions: int = 1, **config: str) -> RawTopic:
        """Makes a topic; settings are given with `_` for `.`."""
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=partitions, replication_factor=1, configs=configs
                )
            ]
        )
        [made] = (await self.broker.controller.submit(lambda c: c.create_topics(request))).topics
        assert made.error_code == 0, made.error_message
        return RawTopic(name, made.topic_id)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        [gone] = (await self.broker.controller.submit(lambda c: c.delete_topics(request))).responses
        assert gone.error_code == 0, gone.error_message

    def partition(self, topic: RawTopic, index: int = 0) -> Partition:
        return self.broker.replicas.leader_of(topic.name, index)

    @contextmanager
    def held_flushes(self) -> Iterator[Event]:
        """Keeps the flush thread busy until the event is set or the block ends."""
        event = Event()
        self.broker.flusher._pool.submit(event.wait, 30.0)
        try:
            yield event
        finally:
            event.set()

    def close_peers(self) -> None:
        for peer in self._peers:
            peer.close()


def waiting_reads(partition: Partition) -> list[Any]:
    """The reads that wait for this partition."""
    readers = [*partition.readers.consumers, *partition.readers.followers]
    sessions = [reader.session for reader in readers]  # type: ignore[attr-defined]
    return [session.parked for session in sessions if session.parked is not None]


async def until(check: Callable[[], Any], seconds: float = ANSWER_SECONDS_MAX) -> Any:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (value := check()):
        assert loop.time() < deadline, f"still not so after {seconds} s"
        await asyncio.sleep(0.002)
    return value


@asynccontextmanager
async def running(data_dir: Path, **settings: str) -> AsyncIterator[Rig]:
    """A node on a port of its own with its data in `data_dir`; settings with `_` for `.`."""
    texts = {
        "log.dirs": str(data_dir),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "penstock.http.listen": "",
        "auto.create.topics.enable": "false",
    }
    texts |= {key.replace("_", "."): value for key, value in settings.items()}
    node = Node(broker_config(texts))
    await node.start()
    rig = Rig(node)
    try:
        yield rig
    finally:
        rig.close_peers()
        node.hurry()
        await rig.stop()


# -- disks that fail -------------------------------------------------------------------------------


@contextmanager
def full_disk(partition: Partition) -> Iterator[None]:
    """No file of this process may grow beyond the partition's active segment as it is now."""
    size = partition.log.segments.active.size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert size >= 64 * 1024, "a smaller limit would hit other files of the test too"
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def failing_fsync(partition: Partition) -> Iterator[None]:
    """The segment's descriptor leads into a pipe, which cannot be synced."""
    file = partition.log.segments.active.file
    fd = file.pin()
    kept = os.dup(fd)
    ends = os.pipe()
    os.dup2(ends[1], fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        for end in (kept, *ends):
            os.close(end)
        file.unpin()
