"""NATS JetStream and Redis Streams as `bench/peers` starts and speaks to them.

What a server sends is given to the wire in pieces of several sizes, as a socket may cut it
anywhere: counts have to be exact each time.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.peers.marked import MARK, payload
from bench.peers.nats_server import NatsServer
from bench.peers.nats_wire import PULL_MESSAGES
from bench.peers.redis_server import RedisServer
from bench.peers.redis_wire import ENTRIES_MAX, RedisPublisher, encode
from bench.peers.server import Server
from bench.peers.sockets import connect
from bench.peers.wire import PeerError

from support.peer_wires import RECEIVE_BYTES, connections, cut, read, send
from support.waiting import eventually

pytestmark = pytest.mark.peers

SIZE = 100
GROUPS = 2
PIECES = (1, 97, RECEIVE_BYTES)
MANY = 2 * max(PULL_MESSAGES, ENTRIES_MAX) + 500
"""More than a consumer asks for at once."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[NatsServer, RedisServer], ids=["nats", "redis"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    kind: type[NatsServer | RedisServer] = request.param
    yield from started(kind, tmp_path_factory.mktemp("peer"))


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from started(NatsServer, tmp_path_factory.mktemp("nats"))


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from started(RedisServer, tmp_path_factory.mktemp("redis"), fsync=True)


def started(
    kind: type[NatsServer | RedisServer], folder: Path, *, fsync: bool = False
) -> Iterator[Server]:
    if why := kind.missing():
        pytest.skip(why)
    server = kind(folder / "server", fsync=fsync)
    assert server.start() > 0
    pids = server.pids()
    yield server
    server.stop()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


@pytest.fixture
def connected(server: Server) -> Iterator[Callable[[], socket.socket]]:
    """Makes connections that end with the test."""
    with connections(server) as one:
        yield one


@pytest.fixture
def topic(server: Server) -> Iterator[str]:
    name = f"topic-{next(_numbers)}"
    server.wire().make(name, groups=GROUPS)
    yield name
    server.wire().remove(name)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("batch", [1, 50])
def test_every_request_is_acknowledged_once(
    server: Server, topic: str, connected: Callable[[], socket.socket], batch: int, piece: int
) -> None:
    wire = server.wire()
    socks = [connected() for _ in range(2)]
    publishers = [
        wire.publisher(sock, topic, size=SIZE, messages=batch, acks="1") for sock in socks
    ]
    for sock, publisher in zip(socks, publishers, strict=True):
        send(sock, publisher, 1, piece)
        send(sock, publisher, 20, piece)
    sock = connected()
    consumer = wire.consumer(sock, topic, group=0)
    sock.sendall(consumer.first)
    read(sock, consumer, 2 * 21 * batch, piece)


@pytest.mark.parametrize("piece", PIECES[1:])
def test_each_group_gets_every_message_and_new_ones_at_once(
    server: Server, topic: str, connected: Callable[[], socket.socket], piece: int
) -> None:
    wire = server.wire()
    sock = connected()
    publisher = wire.publisher(sock, topic, size=SIZE, messages=MANY // 10, acks="all")
    send(sock, publisher, 10, RECEIVE_BYTES)
    readers = []
    for group in range(GROUPS):
        reader = connected()
        consumer = wire.consumer(reader, topic, group=group)
        reader.sendall(consumer.first)
        read(reader, consumer, MANY, piece)
        readers.append((reader, consumer))
    for _ in range(3):
        send(sock, publisher, 1, RECEIVE_BYTES)
        for reader, consumer in readers:
            read(reader, consumer, MANY // 10, piece)


def test_a_group_that_comes_again_begins_at_the_start(
    server: Server, topic: str, connected: Callable[[], socket.socket]
) -> None:
    wire = server.wire()
    sock = connected()
    send(sock, wire.publisher(sock, topic, size=SIZE, messages=10, acks="1"), 3, RECEIVE_BYTES)
    for _ in range(2):
        reader = connected()
        consumer = wire.consumer(reader, topic, group=1)
        reader.sendall(consumer.first)
        read(reader, consumer, 30, RECEIVE_BYTES)
        reader.close()


def test_large_messages_are_whole_when_they_are_counted(
    server: Server, topic: str, connected: Callable[[], socket.socket]
) -> None:
    wire = server.wire()
    sock, reader = connected(), connected()
    publisher = wire.publisher(sock, topic, size=500_000, messages=1, acks="1")
    send(sock, publisher, 2, RECEIVE_BYTES)
    consumer = wire.consumer(reader, topic, group=0)
    reader.sendall(consumer.first)
    arrived = counted = 0
    while counted < 2:
        for part in cut(reader, 10_000):
            arrived += len(part)
            counted += consumer.received(part).messages
            assert arrived >= counted * 500_000


def test_what_exists_is_not_made_again_and_what_does_not_is_not_removed(
    server: Server, topic: str
) -> None:
    wire = server.wire()
    with pytest.raises(PeerError, match="already"):
        wire.make(topic)
    with pytest.raises(PeerError):
        wire.remove("nothing")


@pytest.mark.parametrize("piece", PIECES)
def test_a_consumer_is_told_when_its_topic_goes(
    server: Server, connected: Callable[[], socket.socket], piece: int
) -> None:
    wire = server.wire()
    wire.make("short", groups=1)
    sock, reader = connected(), connected()
    consumer = wire.consumer(reader, "short", group=0)
    reader.sendall(consumer.first)
    publisher = wire.publisher(sock, "short", size=SIZE, messages=1, acks="1")
    send(sock, publisher, 1, RECEIVE_BYTES)
    read(reader, consumer, 1, piece)
    wire.remove("short")
    with pytest.raises(PeerError, match="refused to read short"):
        read(reader, consumer, 1, piece)


def test_there_is_no_consumer_without_a_topic(
    server: Server, connected: Callable[[], socket.socket]
) -> None:
    with pytest.raises(PeerError):
        server.wire().consumer(connected(), "nothing", group=0)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    ("topic", "size", "why"),
    [
        ("nothing", SIZE, "503"),
        ("small", SIZE, "message size exceeds maximum allowed"),
        ("small", 2_000_000, "Maximum Payload Violation"),
    ],
)
def test_nats_refuses_a_message(nats: Server, topic: str, size: int, why: str, piece: int) -> None:
    assert isinstance(nats, NatsServer)
    wire = nats.wire()
    with wire.session() as session:
        settings = {"name": "small", "subjects": ["small"], "max_msg_size": 50}
        session.get("$JS.API.STREAM.CREATE.small", settings)
    with connect(nats) as sock:
        publisher = wire.publisher(sock, topic, size=size, messages=1, acks="1")
        with pytest.raises(PeerError, match=why):
            send(sock, publisher, 1, piece)


def test_nats_may_ping_a_publisher(nats: Server) -> None:
    with connect(nats) as sock:
        publisher = nats.wire().publisher(sock, "pinged", size=SIZE, messages=2, acks="1")
        ack = b'MSG _INBOX.0 1  30\r\n{"stream":"pinged", "seq":%d}\r\n'
        told = b"PING\r\n" + ack % 1 + b"PING\r\n" + ack % 2 + b"PING\r\n"
        for piece in PIECES:
            parts = [told[at : at + piece] for at in range(0, len(told), piece)]
            assert sum(publisher.acknowledged(memoryview(part)) for part in parts) == 1


def test_nats_keeps_its_data_in_its_folder_and_cannot_sync_first(
    nats: Server, tmp_path: Path
) -> None:
    assert (nats.folder / "data" / "jetstream").is_dir()
    assert nats.version().startswith("2.")
    assert not nats.fsync_before_ack
    with pytest.raises(PeerError, match="cannot sync"):
        NatsServer(tmp_path, fsync=True)


def told(server: Server, *words: str) -> str:
    """What Redis answers, in its own notation."""
    with connect(server) as sock:
        sock.sendall(encode(*words))
        return sock.recv(RECEIVE_BYTES).decode()


def test_redis_is_a_log_on_disk_and_syncs_before_it_answers_when_it_shall(redis: Server) -> None:
    assert "yes" in told(redis, "CONFIG", "GET", "appendonly")
    assert "always" in told(redis, "CONFIG", "GET", "appendfsync")
    assert "before" in redis.durability
    assert (redis.folder / "appendonlydir").is_dir()
    assert redis.version().startswith("7.")
    assert redis.in_memory


def test_redis_counts_the_time_of_processes_that_rewrite_its_file(redis: Server) -> None:
    wire = redis.wire()
    wire.make("rewritten")
    with connect(redis) as sock:
        publisher = wire.publisher(sock, "rewritten", size=SIZE, messages=20_000, acks="1")
        send(sock, publisher, 1, RECEIVE_BYTES)

    def others_worked() -> bool:
        return redis.cpu_seconds() > Server.cpu_seconds(redis)

    assert not others_worked()
    eventually(lambda: told(redis, "BGREWRITEAOF") and others_worked())

    def ended_ones_count() -> bool:
        """Their time is told in ticks: several may be needed until there is one."""
        told(redis, "BGREWRITEAOF")
        eventually(lambda: "aof_rewrite_in_progress:0" in told(redis, "INFO", "persistence"))
        return others_worked()

    eventually(ended_ones_count)


@pytest.mark.parametrize("piece", PIECES)
def test_redis_refuses_a_message(redis: Server, piece: int) -> None:
    assert "+OK" in told(redis, "SET", "plain", "text")
    with connect(redis) as sock:
        publisher = redis.wire().publisher(sock, "plain", size=SIZE, messages=2, acks="1")
        with pytest.raises(PeerError, match="refused to publish to plain: WRONGTYPE"):
            send(sock, publisher, 1, piece)


@pytest.mark.parametrize("piece", PIECES)
def test_redis_refuses_one_message_behind_others(piece: int) -> None:
    publisher = RedisPublisher("full", SIZE, 10)
    answers = b"$15\r\n1794817625464-0\r\n" * 3 + b"-OOM command not allowed\r\n"
    parts = [memoryview(answers)[at : at + piece] for at in range(0, len(answers), piece)]
    with pytest.raises(PeerError, match="refused to publish to full: OOM command not allowed"):
        sum(publisher.acknowledged(part) for part in parts)


def test_a_message_is_as_long_as_asked_and_has_room_for_its_mark() -> None:
    assert len(payload(SIZE)) == SIZE
    assert payload(len(MARK)) == MARK
    with pytest.raises(ValueError, match="16 bytes"):
        payload(len(MARK) - 1)
