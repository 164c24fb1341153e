"""A real listener that answers as a test tells it to, and the loop it runs on."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop

from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.net.server import NetLimits, Server
from penstock.peers.connection import Address, response_type
from penstock.wire.apis import ApiKey, response_header_version
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.schema import Message

TEST_SECONDS_MAX = 60.0
_HEADER = struct.Struct(">hhih")
REQUESTS: dict[int, type[Message]] = {
    ApiKey.API_VERSIONS: ApiVersionsRequest,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterRequest,
    ApiKey.FETCH_SNAPSHOT: FetchSnapshotRequest,
}


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await test()

    uvloop.run(timed())


class Peer:
    """Answers each request with what `answer` makes of it; None leaves it unanswered."""

    def __init__(self, answer: Callable[[Message], Message | None]) -> None:
        self.answer = answer
        self.requests: list[tuple[int, str, Message]] = []
        self.exchanges: list[Exchange] = []
        self.served = [
            ApiVersion(api_key=ApiKey.DESCRIBE_CLUSTER, min_version=0, max_version=2),
            ApiVersion(api_key=ApiKey.FETCH_SNAPSHOT, min_version=0, max_version=1),
        ]

    def __call__(self, connection: Connection, frame: memoryview, received_ns: int) -> None:
        key, version, correlation_id, size = _HEADER.unpack_from(frame)
        client_id = bytes(frame[_HEADER.size : _HEADER.size + size]).decode()
        position = _HEADER.size + size + 1  # every request here is flexible; no tags
        request, _ = REQUESTS[key].decode_from(frame, position, version)
        exchange = Exchange(connection, key, version, correlation_id, received_ns)
        if key == ApiKey.API_VERSIONS:
            self.finish(exchange, request, ApiVersionsResponse(api_keys=self.served))
            return
        self.requests.append((version, client_id, request))
        self.exchanges.append(exchange)
        response = self.answer(request)
        if response is not None:
            self.finish(exchange, request, response)

    def finish(self, exchange: Exchange, request: Message, response: Message) -> None:
        assert type(response) is response_type(type(request))
        tags = b"\0" if response_header_version(exchange.api_key, exchange.version) else b""
        body = response.encode(exchange.version)
        head = struct.pack(">ii", 4 + len(tags) + len(body), exchange.correlation_id)
        exchange.finish(head + tags + body)


@asynccontextmanager
async def serving(
    peer: Peer, port: int = 0, limits: NetLimits | None = None
) -> AsyncIterator[tuple[Address, Server]]:
    server = Server("PLAINTEXT", limits or NetLimits(), peer, lambda _: None)
    address = Address(*server.bind("127.0.0.1", port))
    await server.start()
    try:
        yield address, server
    finally:
        await server.stop(0)
