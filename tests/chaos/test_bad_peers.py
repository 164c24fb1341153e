"""Peers that break the rules get an error or are closed; all others go on, memory stays bounded."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pytest

from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.batches import Rec, batch, record
from support.calls import fetch_request, find_topic, list_offset, produce, produce_request
from support.growth import MEGABYTE, growth_below
from support.helpers import make_topic
from support.neighbour import Neighbour
from support.node import NodeProcess
from support.process import BrokerProcess
from support.raw import Closed, RawClient
from support.waiting import eventually

SEED = 20_260_114
ZSTD = 4

NodeMaker = Callable[..., BrokerProcess]


@pytest.fixture
def node(fresh_node: NodeMaker) -> Iterator[BrokerProcess]:
    """A broker for one test: what happened to it must not touch the next."""
    broker = fresh_node()
    yield broker
    broker.stop()


def connect(node: BrokerProcess) -> socket.socket:
    return socket.create_connection((node.host, node.port), timeout=20)


def alive(node: BrokerProcess) -> None:
    with RawClient(node.host, node.port) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0


# Bytes that are no requests


def test_random_bytes(node: BrokerProcess) -> None:
    chance = random.Random(SEED)
    with growth_below(node, 60), Neighbour(node):
        for _ in range(300):
            with connect(node) as peer, contextlib.suppress(ConnectionError):
                peer.sendall(chance.randbytes(chance.randrange(1, 4000)))
                if chance.random() < 0.3:
                    peer.shutdown(socket.SHUT_WR)
        alive(node)


def test_frames_of_random_bytes(node: BrokerProcess) -> None:
    """A right length, a header of a real API, then anything."""
    chance = random.Random(SEED)
    keys = list(ApiKey)
    with growth_below(node, 60), Neighbour(node):
        for _ in range(600):
            body = struct.pack(">hhi", chance.choice(keys), chance.randrange(-1, 20), 7)
            body += struct.pack(">h", 3) + b"bad" + chance.randbytes(chance.randrange(200))
            with connect(node) as peer, contextlib.suppress(ConnectionError):
                peer.sendall(struct.pack(">i", len(body)) + body)
        alive(node)


def test_requests_with_flipped_bytes(node: BrokerProcess) -> None:
    chance = random.Random(SEED)
    topic = make_topic(node, "flipped")
    with RawClient(node.host, node.port) as client:
        known = find_topic(client, topic)
        models = [
            client.frame(produce_request(known, batch([b"x" * 50] * 5), 9), 9),
            client.frame(produce_request(known, batch([b"x" * 50] * 5), 13), 13),
            client.frame(fetch_request([(known, {0: 0})], 16), 16),
            client.frame(fetch_request([(known, {0: 0})], 4), 4),
            client.frame(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12),
            client.frame(ApiVersionsRequest(client_software_name="a"), 3),
        ]
    with growth_below(node, 80), Neighbour(node):
        for _ in range(900):
            frame = bytearray(chance.choice(models))
            for _ in range(chance.randrange(1, 4)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            with connect(node) as peer, contextlib.suppress(ConnectionError):
                peer.sendall(struct.pack(">i", len(frame)) + frame)
        alive(node)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_impossible_frame_lengths_close_the_connection(node: BrokerProcess, length: int) -> None:
    with growth_below(node, 30), RawClient(node.host, node.port) as peer:
        peer.socket.sendall(struct.pack(">i", length) + b"x" * 100)
        assert peer.is_closed(10)
    alive(node)


def test_an_empty_frame_closes_the_connection(node: BrokerProcess) -> None:
    with RawClient(node.host, node.port) as peer:
        peer.send_frame(b"")
        assert peer.is_closed(10)
    alive(node)


@pytest.mark.parametrize("count", [2**31 - 1, 10_000_000])
def test_impossible_array_lengths(node: BrokerProcess, count: int) -> None:
    with growth_below(node, 30), RawClient(node.host, node.port) as peer:
        peer.send_frame(peer.header(ApiKey.METADATA, 5) + struct.pack(">i", count) + b"\x00")
        assert peer.is_closed(10)
    alive(node)


def test_truncated_frames(node: BrokerProcess) -> None:
    with Neighbour(node):
        for cut in range(0, 60, 3):
            with RawClient(node.host, node.port) as peer:
                frame = peer.frame(MetadataRequest(topics=None), 12)
                peer.socket.sendall((struct.pack(">i", 500) + frame)[:cut])
        alive(node)


# Connections that are a burden


@pytest.mark.penstock_only  # Kafka sets the announced bytes aside at once
def test_announced_bytes_that_never_come_cost_nothing(node: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack, growth_below(node, 80), Neighbour(node):
        for _ in range(100):
            peer = stack.enter_context(connect(node))
            peer.sendall(struct.pack(">i", 90 * MEGABYTE) + b"x" * 1000)
        time.sleep(2)  # time in which memory could grow and the neighbour must get on


def test_thousands_of_connects_and_disconnects(node: BrokerProcess) -> None:
    reset = struct.pack("ii", 1, 0)
    with growth_below(node, 40), Neighbour(node):
        files = node.open_files()
        for i in range(3000):
            with connect(node) as peer:
                if i % 3 == 0:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                elif i % 3 == 1:
                    peer.sendall(b"\x00\x00")
        eventually(lambda: node.open_files() <= files + 5, 10)


def test_a_client_that_never_reads_its_answers(node: BrokerProcess) -> None:
    topic = make_topic(node, "unread")
    with RawClient(node.host, node.port) as client:
        known = find_topic(client, topic)
        for _ in range(8):
            assert produce(client, known, batch([b"x" * 900_000])).error_code == 0
    with (
        growth_below(node, 200),
        Neighbour(node),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(5):
            peer = stack.enter_context(RawClient(node.host, node.port))
            peer.socket.settimeout(0.3)
            request = fetch_request(
                [(known, {0: 0})], 12, partition_max_bytes=8 * MEGABYTE, max_bytes=8 * MEGABYTE
            )
            with contextlib.suppress(TimeoutError, ConnectionError):
                for _ in range(2000):
                    peer.send(request, 12)
        time.sleep(1)  # time in which the answers could pile up
    alive(node)


def test_idle_connections_are_closed(fresh_node: NodeMaker) -> None:
    node = fresh_node(settings={"connections.max.idle.ms": "1500"})
    started = time.monotonic()
    with Neighbour(node), RawClient(node.host, node.port) as silent:
        with RawClient(node.host, node.port) as half:
            half.call(ApiVersionsRequest(), 0)
            half.socket.sendall(b"\x00\x00")
            assert silent.is_closed(10)
            assert half.is_closed(10)
        assert time.monotonic() - started > 1.2
    node.stop()


# Named limits


@pytest.mark.penstock_only  # Kafka's own connections to itself count too
def test_max_connections_per_ip(fresh_node: NodeMaker) -> None:
    node = fresh_node(settings={"max.connections.per.ip": "8"})
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RawClient(node.host, node.port)) for _ in range(8)]
        for peer in peers:
            assert peer.call(ApiVersionsRequest(), 0).error_code == 0
        with RawClient(node.host, node.port) as extra:
            assert extra.is_closed(10)
        if isinstance(node, NodeProcess):
            assert node.metric("penstock_connections_refused_total") >= 1
        assert peers[0].call(ApiVersionsRequest(), 0).error_code == 0
        peers[0].close()
        eventually(lambda: _is_served(node))
    node.stop()


def _is_served(node: BrokerProcess) -> bool:
    with RawClient(node.host, node.port, seconds=2) as client:
        try:
            return bool(client.call(ApiVersionsRequest(), 0).error_code == 0)
        except (Closed, TimeoutError):
            return False


def test_max_connections(fresh_node: NodeMaker) -> None:
    node = fresh_node(settings={"max.connections": "8"})
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RawClient(node.host, node.port)) for _ in range(8)]
        for peer in peers:
            assert peer.call(ApiVersionsRequest(), 0).error_code == 0
        assert not _is_served(node), "one more than max.connections"
        for peer in peers[:4]:
            peer.close()
        eventually(lambda: _is_served(node))
    node.stop()


def test_queued_max_request_bytes(fresh_node: NodeMaker) -> None:
    """Many large requests at once all get through, a few at a time."""
    limit = str(4 * MEGABYTE)
    node = fresh_node(
        settings={"queued.max.request.bytes": limit, "socket.request.max.bytes": limit}
    )
    topic = make_topic(node, "queued", 1, {"max.message.bytes": str(8 * MEGABYTE)})
    data = batch([b"x" * (3 * MEGABYTE)])
    codes: list[int] = []

    def send() -> None:
        with RawClient(node.host, node.port) as client:
            known = find_topic(client, topic)
            for _ in range(3):
                codes.append(produce(client, known, data).error_code)

    with growth_below(node, 120):
        threads = [threading.Thread(target=send) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert codes == [0] * 60
    node.stop()


def test_socket_request_max_bytes(fresh_node: NodeMaker) -> None:
    node = fresh_node(settings={"socket.request.max.bytes": "200000"})
    topic = make_topic(node, "small")
    with RawClient(node.host, node.port) as client:
        known = find_topic(client, topic)
        assert produce(client, known, batch([b"x" * 190_000])).error_code == 0
        with pytest.raises((Closed, ConnectionError)):
            produce(client, known, batch([b"x" * 210_000]))
    node.stop()


@pytest.mark.penstock_only
def test_a_decompression_bomb_is_refused(node: BrokerProcess) -> None:
    """A gigabyte of zeros in a small batch, to a topic whose compression differs."""
    known_name = make_topic(node, "bomb", 1, {"compression.type": "lz4"})
    value = bytes(1 << 30)
    payload = bytes(cramjam.zstd.compress(record(Rec(value), 0, Rec().timestamp), 3))
    assert len(payload) < MEGABYTE
    del value
    with growth_below(node, 600), RawClient(node.host, node.port, seconds=60) as client:
        known = find_topic(client, known_name)
        answer: Any = produce(client, known, batch([b"x"], payload=payload, attributes=ZSTD))
        assert answer.error_code != 0
        assert list_offset(client, known, -1).offset == 0
    alive(node)
