"""The connections of a node to its peers: made on demand, shared, given up with a pause."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from penstock.peers import peers as module
from penstock.peers.connection import Address
from penstock.peers.errors import PeerRefused, PeerUnreachable
from penstock.peers.peers import Channel, Knock, Peers, knock
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.schema import Message
from unit.peers.peer_server import Peer, run, serving


def here(request: Message) -> Message:
    return DescribeClusterResponse(controller_id=7)


def test_a_connection_is_made_once_and_used_again_per_channel() -> None:
    async def test() -> None:
        async with serving(Peer(here)) as (address, server):
            peers = Peers("node-1")
            await asyncio.gather(
                *(peers.send(address, Channel.QUORUM, DescribeClusterRequest()) for _ in range(5))
            )
            assert len(server.connections) == 1
            await peers.send(address, Channel.REPLICA, DescribeClusterRequest())
            assert len(server.connections) == 2
            peers.close()
            while server.connections:
                await asyncio.sleep(0.001)

    run(test)


def test_a_failed_attempt_is_not_repeated_before_its_pause_is_over() -> None:
    async def test() -> None:
        peer = Peer(here)
        async with serving(peer) as (address, _):
            pass
        peers = Peers("node-1")
        with pytest.raises(PeerRefused):
            await peers.connection(address, Channel.QUORUM)
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address[:2])
        taken.listen()
        with pytest.raises(PeerRefused):  # the old answer: the address is not asked again yet
            await peers.connection(address, Channel.QUORUM)
        taken.close()
        peers.close()

    run(test)


async def until_unreachable(peers: Peers, address: Address) -> None:
    with contextlib.suppress(PeerUnreachable):
        while True:
            await peers.connection(address, Channel.QUORUM)
            await asyncio.sleep(0.001)


def test_after_the_pause_the_peer_is_found_again() -> None:
    async def test() -> None:
        peers = Peers("node-1")
        async with serving(Peer(here)) as (address, _):
            await peers.connection(address, Channel.QUORUM)
        await until_unreachable(peers, address)
        async with serving(Peer(here), address.port):
            connection = None
            while connection is None:
                try:
                    connection = await peers.connection(address, Channel.QUORUM)
                except PeerUnreachable:
                    await asyncio.sleep(0.005)
            peers.close()

    run(test)


def test_who_wants_to_know_is_told_of_a_broken_connection_and_not_of_a_closed_one() -> None:
    async def test() -> None:
        lost: list[tuple[Address, Channel]] = []
        async with serving(Peer(here)) as (address, server):
            peers = Peers("node-1", lambda *what: lost.append(what))
            await peers.connection(address, Channel.QUORUM)
            await peers.connection(address, Channel.METADATA)
            peers.forget(address)
            await peers.connection(address, Channel.FORWARD)
            for connection in list(server.connections):
                connection.abort()
            while not lost:
                await asyncio.sleep(0.001)
            assert lost == [(address, Channel.FORWARD)]
            peers.close()

    run(test)


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S_MAX", 0.05)

    async def test() -> None:
        async with serving(Peer(here)) as (address, server):
            peers = Peers("node-1")
            await peers.connection(address, Channel.QUORUM)
            assert server.accepted_total == 1
            while server.connections:
                await asyncio.sleep(0.005)
            await peers.connection(address, Channel.QUORUM)
            assert server.accepted_total == 2
            peers.close()

    run(test)


def test_stopping_ends_an_attempt_to_connect() -> None:
    async def test() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname())
        peers = Peers("node-1")
        attempt = asyncio.ensure_future(peers.connection(address, Channel.QUORUM, timeout_s=20))
        await asyncio.sleep(0.02)
        peers.close()
        with pytest.raises(PeerUnreachable, match="stopping"):
            await attempt
        with pytest.raises(PeerUnreachable, match="stopping"):
            await peers.connection(address, Channel.QUORUM)
        server.close()

    run(test)


def test_knocking() -> None:
    async def test() -> None:
        async with serving(Peer(here)) as (address, server):
            assert await knock(address) is Knock.ACCEPTED
            while server.connections:
                await asyncio.sleep(0.001)
        assert await knock(address) is Knock.REFUSED
        # A listener whose queue is full leaves new connections without an answer.
        full = socket.socket()
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(3):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(full.getsockname())
            waiting.append(client)
        assert await knock(Address(*full.getsockname()), timeout_s=0.05) is Knock.SILENT
        for client in [*waiting, full]:
            client.close()

    run(test)
