"""RabbitMQ's quorum queues and streams as `bench/peers` starts and speaks to them.

What the server sends is given to the wire in pieces of several sizes, as a socket may cut it
anywhere: counts have to be exact each time.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.peers import amqp_wire, rabbit_stream_wire
from bench.peers.amqp_wire import ACK, NACK, AmqpConsumer, AmqpPublisher, method
from bench.peers.load import consume, publish
from bench.peers.rabbit_stream_wire import PUBLISH_ERROR, StreamPublisher, command
from bench.peers.rabbitmq_server import RabbitMQ, RabbitMQQuorumQueue, RabbitMQStream
from bench.peers.wire import PeerError, Publisher

from support.peer_wires import RECEIVE_BYTES, connections, cut, read, send

pytestmark = pytest.mark.peers

GROUPS = 2
PIECES = (1, 13, RECEIVE_BYTES)
SECONDS_MAX = 60.0

_numbers = itertools.count(1)


@pytest.fixture(
    scope="module", params=[RabbitMQQuorumQueue, RabbitMQStream], ids=["quorum", "stream"]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RabbitMQ]:
    kind: type[RabbitMQ] = request.param
    if why := kind.missing():
        pytest.skip(why)
    server = kind(tmp_path_factory.mktemp("rabbitmq") / "server")
    try:
        assert server.start() > 0
        pids = server.pids()
        assert "beam" in Path(f"/proc/{pids[0]}/comm").read_text()
        yield server
    finally:
        server.stop()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


@pytest.fixture
def connected(server: RabbitMQ) -> Iterator[Callable[[], socket.socket]]:
    """Makes connections that end with the test."""
    with connections(server) as one:
        yield one


@pytest.fixture
def topic(server: RabbitMQ) -> Iterator[str]:
    """For so many groups."""
    name = f"topic-{next(_numbers)}"
    server.wire().make(name, groups=GROUPS)
    yield name
    server.wire().remove(name)


@pytest.mark.parametrize("piece", PIECES)
def test_batches_and_single_messages_reach_every_group(
    server: RabbitMQ, topic: str, connected: Callable[[], socket.socket], piece: int
) -> None:
    wire = server.wire()
    for messages, requests, size in ((50, 4, 100), (1, 20, 1_000), (3, 2, 0)):
        sock = connected()
        publisher = wire.publisher(sock, topic, size=size, messages=messages, acks="all")
        send(sock, publisher, requests, piece)
    readers = []
    for group in range(GROUPS):
        reader = connected()
        consumer = wire.consumer(reader, topic, group=group)
        reader.sendall(consumer.first)
        read(reader, consumer, 50 * 4 + 20 + 3 * 2, piece)
        readers.append((reader, consumer))
    for _ in range(2):
        send(sock, publisher, 1, piece)
        for reader, consumer in readers:
            read(reader, consumer, 3, piece)


def test_a_message_that_needs_several_frames_counts_once_and_when_it_is_whole(
    server: RabbitMQ, topic: str, connected: Callable[[], socket.socket]
) -> None:
    wire, size = server.wire(), 300_000
    sock, reader = connected(), connected()
    send(sock, wire.publisher(sock, topic, size=size, messages=4, acks="1"), 2, RECEIVE_BYTES)
    consumer = wire.consumer(reader, topic, group=0)
    reader.sendall(consumer.first)
    read_bytes = counted = 0
    while counted < 8:
        for part in cut(reader, 10_000):
            read_bytes += len(part)
            counted += consumer.received(part).messages
            assert read_bytes >= counted * size
    assert counted == 8


def test_the_load_gets_back_all_that_it_published(server: RabbitMQ) -> None:
    """More than a consumer is given without acknowledging, or without giving credit."""
    wire, name = server.wire(), "loaded"
    wire.make(name)
    done = 0
    for messages, requests in ((500, 10), (1, 400)):
        done += publish(
            server,
            name,
            size=100,
            messages=messages,
            connections=2,
            depth=2,
            acks="1",
            seconds=SECONDS_MAX,
            requests_max=requests,
        ).messages
    assert done == 5_400
    back = consume(server, name, groups=1, expected=done, seconds=SECONDS_MAX)
    assert back.messages == done
    assert server.cpu_seconds() > 0
    assert server.rss_bytes() > 20_000_000
    wire.remove(name)


def test_what_exists_is_not_made_again_and_what_does_not_is_not_removed(
    server: RabbitMQ, topic: str, connected: Callable[[], socket.socket]
) -> None:
    wire, sock = server.wire(), connected()
    publisher = wire.publisher(sock, topic, size=10, messages=1, acks="1")
    send(sock, publisher, 1, RECEIVE_BYTES)
    with pytest.raises(PeerError, match=topic):
        wire.make(topic, groups=GROUPS)
    with pytest.raises(PeerError, match="nothing"):
        wire.remove("nothing")


def test_a_topic_that_is_not_there_or_goes_is_told(
    server: RabbitMQ, connected: Callable[[], socket.socket]
) -> None:
    wire = server.wire()
    with pytest.raises(PeerError, match="nothing"):
        wire.publisher(connected(), "nothing", size=10, messages=1, acks="1")
    reader = connected()
    consumer = wire.consumer(reader, "nothing", group=0)
    reader.sendall(consumer.first)
    with pytest.raises(PeerError, match="nothing"):
        read(reader, consumer, 1, RECEIVE_BYTES)

    wire.make("short", groups=GROUPS)
    sock, reader = connected(), connected()
    publisher = wire.publisher(sock, "short", size=10, messages=1, acks="1")
    consumer = wire.consumer(reader, "short", group=0)
    reader.sendall(consumer.first)
    send(sock, publisher, 1, RECEIVE_BYTES)
    read(reader, consumer, 1, RECEIVE_BYTES)
    wire.remove("short")
    with pytest.raises(PeerError, match="RabbitMQ ended"):
        read(reader, consumer, 1, RECEIVE_BYTES)
    with pytest.raises(PeerError, match="published"):
        send(sock, publisher, 1, RECEIVE_BYTES)


def test_its_data_are_in_its_folder_and_it_says_when_they_are_on_disk(
    server: RabbitMQ, tmp_path: Path
) -> None:
    assert any((server.folder / "data").iterdir())
    assert (server.folder / ".erlang.cookie").exists()
    assert server.version().startswith("3.")
    assert ("before" in server.durability) == server.fsync_before_ack
    assert server.fsync_before_ack == isinstance(server, RabbitMQQuorumQueue)
    if not server.fsync_before_ack:
        with pytest.raises(PeerError, match="cannot sync"):
            type(server)(tmp_path, fsync=True)


def told(publisher: Publisher, data: bytes, piece: int) -> list[int]:
    parts = [data[at : at + piece] for at in range(0, len(data), piece)]
    return [n for part in parts if (n := publisher.acknowledged(memoryview(part)))]


def confirm(tag: int, *, multiple: bool = False) -> bytes:
    return method(ACK, struct.pack(">QB", tag, multiple))


@pytest.mark.parametrize("piece", PIECES)
def test_confirms_may_overtake_one_another(piece: int) -> None:
    publisher = AmqpPublisher(b"one", messages=3)
    assert publisher.request == b"oneoneone"
    assert told(publisher, confirm(3) + confirm(2) + confirm(5), piece) == []
    assert told(publisher, confirm(1), piece) == [1]
    assert told(publisher, confirm(6) + confirm(9), piece) == []
    assert told(publisher, confirm(7, multiple=True), piece) == [1]
    assert told(publisher, confirm(8), piece) == [1]
    assert told(publisher, confirm(15, multiple=True), piece) == [2]


@pytest.mark.parametrize("piece", PIECES)
def test_a_message_that_is_refused_is_told(piece: int) -> None:
    with pytest.raises(PeerError, match=r"basic\.nack"):
        told(AmqpPublisher(b"x", 1), method(NACK, struct.pack(">QB", 1, 0)), piece)
    refusal = command(PUBLISH_ERROR, struct.pack(">BIQH", 1, 1, 7, 18))
    with pytest.raises(PeerError, match="publisher does not exist"):
        told(StreamPublisher(b"x", 1), refusal, piece)


def test_a_request_that_is_larger_than_a_frame_is_split() -> None:
    sizes = []
    data = rabbit_stream_wire.request(size=100, messages=25, frame_bytes_max=1200)
    while data:
        size, _, _, _, count = struct.unpack_from(">IHHBI", data)
        assert size <= 1200
        sizes.append(count)
        data = data[4 + size :]
    assert sizes == [10, 10, 5]
    with pytest.raises(PeerError, match="too few"):
        rabbit_stream_wire.request(size=2000, messages=1, frame_bytes_max=1200)


def test_a_consumer_acknowledges_in_lots() -> None:
    consumer = AmqpConsumer("q")
    one = amqp_wire.message("", "q", 10, 0).replace(
        struct.pack(">HH", *amqp_wire.PUBLISH), struct.pack(">HH", *amqp_wire.DELIVER), 1
    )
    lot = amqp_wire.ACK_EVERY_MESSAGES
    assert consumer.received(memoryview(one * (lot - 1))) == (lot - 1, None)
    assert consumer.received(memoryview(one)) == (1, confirm(lot, multiple=True))
    assert consumer.received(memoryview(one * 2)) == (2, None)
