"""A connection to another node, against a real listener."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.net.server import NetLimits
from penstock.peers.connection import Address, PeerConnection
from penstock.peers.errors import (
    PeerIncompatible,
    PeerLost,
    PeerRefused,
    PeerTimedOut,
    PeerUnreachable,
)
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersion
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestTopicSnapshot,
)
from penstock.wire.messages.fetch_snapshot import ResponsePartitionSnapshot as PartitionSnapshot
from penstock.wire.messages.fetch_snapshot import ResponseTopicSnapshot as TopicSnapshot
from penstock.wire.schema import Message
from unit.peers.peer_server import Peer, run, serving


def cluster_id(request: Message) -> Message:
    return DescribeClusterResponse(cluster_id="c", controller_id=7)


async def connected(address: Address, lost: list[PeerConnection] | None = None) -> PeerConnection:
    connection = PeerConnection(address, "node-1", (lost if lost is not None else []).append)
    await connection.connect()
    return connection


def test_a_request_is_answered_in_the_highest_version_that_both_speak() -> None:
    async def test() -> None:
        peer = Peer(cluster_id)
        peer.served[0] = ApiVersion(api_key=ApiKey.DESCRIBE_CLUSTER, min_version=0, max_version=1)
        async with serving(peer) as (address, _):
            connection = await connected(address)
            response = await connection.send(DescribeClusterRequest())
            assert response == DescribeClusterResponse(cluster_id="c", controller_id=7)
            assert peer.requests == [(1, "node-1", DescribeClusterRequest())]
            connection.close()

    run(test)


def test_requests_are_pipelined_and_each_gets_its_own_answer() -> None:
    async def test() -> None:
        numbers = iter(range(100))
        peer = Peer(lambda _: DescribeClusterResponse(controller_id=next(numbers)))
        async with serving(peer) as (address, _):
            connection = await connected(address)
            responses = await asyncio.gather(
                *(connection.send(DescribeClusterRequest()) for _ in range(100))
            )
            assert [r.controller_id for r in responses] == list(range(100))
            assert connection.idle
            connection.close()

    run(test)


@pytest.mark.parametrize("size", [10, 60_000, 70_000, 200_000, 9_000_000])
def test_an_answer_of_any_size_comes_whole_and_those_after_it_too(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    def snapshot(request: Message) -> Message:
        if isinstance(request, DescribeClusterRequest):
            return cluster_id(request)
        piece = PartitionSnapshot(size=size, unaligned_records=data)
        return FetchSnapshotResponse(topics=[TopicSnapshot(name="t", partitions=[piece])])

    async def test() -> None:
        async with serving(Peer(snapshot)) as (address, _):
            connection = await connected(address)
            small, large, again, after = await asyncio.gather(
                connection.send(DescribeClusterRequest()),
                connection.send(FetchSnapshotRequest()),
                connection.send(FetchSnapshotRequest()),
                connection.send(DescribeClusterRequest()),
            )
            for response in (large, again):
                assert bytes(response.topics[0].partitions[0].unaligned_records) == data
            assert small.controller_id == after.controller_id == 7
            connection.close()

    run(test)


def test_a_request_without_an_answer_ends_in_time_and_takes_the_connection_with_it() -> None:
    async def test() -> None:
        lost: list[PeerConnection] = []
        async with serving(Peer(lambda _: None)) as (address, _):
            connection = await connected(address, lost)
            later = asyncio.ensure_future(connection.send(DescribeClusterRequest(), timeout_s=20))
            await asyncio.sleep(0)
            with pytest.raises(PeerTimedOut, match=r"DESCRIBE_CLUSTER within 0\.05 s"):
                await connection.send(DescribeClusterRequest(), timeout_s=0.05)
            with pytest.raises(PeerLost):
                await later
            with pytest.raises(PeerLost):
                await connection.send(DescribeClusterRequest())
            while not lost:
                await asyncio.sleep(0.001)
            assert lost == [connection]

    run(test)


def test_a_request_that_was_given_up_does_not_arrive_later() -> None:
    """It is sent again over another connection; what it asks for must not happen once more then."""

    async def test() -> None:
        peer = Peer(lambda _: None)
        limits = NetLimits(receive_buffer_bytes=4096)
        async with serving(peer, limits=limits) as (address, server):
            connection = await connected(address)
            [served] = server.connections
            transport = served._transport
            assert transport is not None
            transport.pause_reading()
            topics = [RequestTopicSnapshot(name="x" * 20_000) for _ in range(10)]
            large = FetchSnapshotRequest(topics=topics)
            with pytest.raises(PeerTimedOut):
                await connection.send(large, timeout_s=0.1)
            transport.resume_reading()
            while server.connections:
                await asyncio.sleep(0.001)
            assert peer.requests == []

    run(test)


def test_a_peer_that_hangs_up_fails_what_is_on_its_way() -> None:
    async def test() -> None:
        lost: list[PeerConnection] = []
        peer = Peer(lambda _: None)
        async with serving(peer) as (address, _):
            connection = await connected(address, lost)
            waiting = asyncio.ensure_future(connection.send(DescribeClusterRequest()))
            while not peer.exchanges:
                await asyncio.sleep(0.001)
            peer.exchanges[0].connection.abort()
            with pytest.raises(PeerLost, match="closed the connection"):
                await waiting
            assert lost == [connection]
            assert connection.closed

    run(test)


def test_an_api_that_the_peer_lacks_is_not_sent() -> None:
    async def test() -> None:
        peer = Peer(cluster_id)
        del peer.served[1]
        async with serving(peer) as (address, _):
            connection = await connected(address)
            with pytest.raises(PeerIncompatible, match="FETCH_SNAPSHOT"):
                await connection.send(FetchSnapshotRequest())
            assert peer.requests == []
            connection.close()

    run(test)


def test_nobody_listens() -> None:
    async def test() -> None:
        async with serving(Peer(cluster_id)) as (address, _):
            pass
        with pytest.raises(PeerRefused):
            await connected(address)

    run(test)


def test_a_listener_that_never_answers_is_given_up() -> None:
    async def test() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname())
        connection = PeerConnection(address, "node-1", lambda _: None)
        with pytest.raises(PeerUnreachable, match=r"within 0\.05 s"):
            await connection.connect(timeout_s=0.05)
        server.close()

    run(test)


class Garbage(asyncio.Protocol):
    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.answer)


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",  # a negative length
        b"\x7f\xff\xff\xff",  # more than any response
        b"\x00\x00\x00\x04\x00\x00\x03\xe8",  # an answer to what was never asked
        b"\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00",  # a response that ends too early
    ],
)
def test_what_is_no_answer_ends_the_connection(answer: bytes) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Garbage(answer), "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname())
        with pytest.raises(PeerUnreachable):
            await connected(address)
        server.close()

    run(test)
