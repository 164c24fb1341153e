"""The queues of `bench/peers` upon real servers: each row in small, and what makes a case fail."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.peers import idle_shares, queue_nodes, queue_wire, queues
from bench.peers.kafka_server import KafkaServer
from bench.peers.nats_server import NatsServer
from bench.peers.penstock_server import PenstockServer
from bench.peers.queue_wire import BY_DEFAULT, ONE, Asking
from bench.peers.rabbitmq_server import RabbitMQQuorumQueue
from bench.peers.redis_server import RedisServer
from bench.peers.server import Server
from bench.peers.sockets import connect
from bench.peers.wire import PeerError
from bench.peers.workloads import Workload

from support import waiting

SECONDS = 0.1
MESSAGES = 500
SIZE = 100
KINDS: dict[str, type[Server]] = {
    "penstock": PenstockServer,
    "kafka": KafkaServer,
    "nats": NatsServer,
    "rabbitmq": RabbitMQQuorumQueue,
}
MARKS = {"kafka": (pytest.mark.peers, pytest.mark.java)}


def kinds(*names: str) -> list[object]:
    return [pytest.param(name, marks=MARKS.get(name, (pytest.mark.peers,))) for name in names]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """One of each kind, started when it is needed first and warm at once."""
    started: dict[str, Server] = {}

    def server(name: str) -> Server:
        kind = KINDS[name]
        if why := kind.missing():
            pytest.skip(why)
        if name not in started:
            new = kind(tmp_path_factory.mktemp(name) / "server")
            new.warm_for |= {BY_DEFAULT, ONE}
            new.start()
            started[name] = new
        return started[name]

    yield server
    for one in started.values():
        one.stop()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases that are over in a moment."""
    for name, value in {
        "FILL_MAX": 4_000,
        "ONE_FILL_MIN": MESSAGES,
        "ONE_FILL_PER_S": MESSAGES,
        "WORK_BEGINS_S": 0.5,
        "WORK_S_MIN": 1.0,
        "PACED_S_MIN": 1.0,
        "RATE_PER_S": 100,
        "IDLE_GROUPS": 3,
        "IDLE_PARTITIONS": 5,
        "READ_S_MIN": 0.01,
    }.items():
        monkeypatch.setattr(queues, name, value)
    monkeypatch.setattr(idle_shares, "SETTLE_S", 0.1)


def rows(text: str) -> list[Workload]:
    return [workload for workload in queues.WORKLOADS if text in workload.name]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("text", ["1 consumer on", "8 consumers on", "ms of work"])
@pytest.mark.parametrize("name", kinds("penstock", "kafka"))
def test_a_row_of_share_groups_gives_its_figures(
    servers: Callable[[str], Server], name: str, text: str
) -> None:
    [workload] = rows(text)
    server = servers(name)
    assert workload.impossible(type(server)) is None
    assert workload.run is not None
    figures = workload.run(server, SECONDS)
    assert {metric.key for metric in workload.metrics} <= figures.keys()
    assert all(figures[metric.key] > 0 for metric in workload.metrics)
    assert figures.get("of_theory", 0.0) <= 1.0


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", kinds("penstock", "kafka"))
def test_times_until_the_acknowledgement(servers: Callable[[str], Server], name: str) -> None:
    [workload] = rows("publish to acknowledgement")
    assert workload.run is not None
    figures = workload.run(servers(name), SECONDS)
    assert bool(figures["kept"]) == (figures["reached_per_s"] >= 950)
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", kinds("penstock", "kafka"))
def test_memory_of_idle_share_partitions(servers: Callable[[str], Server], name: str) -> None:
    [workload] = rows("idle share-partitions")
    assert workload.run is not None
    assert workload.run(servers(name), SECONDS).keys() == {"mb"}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", kinds(*KINDS))
def test_one_message_at_a_time(servers: Callable[[str], Server], name: str) -> None:
    [workload] = rows("one message at a time")
    server = servers(name)
    assert workload.impossible(type(server)) is None
    assert workload.run is not None
    figures = workload.run(server, SECONDS)
    assert all(figures[metric.key] > 0 for metric in workload.metrics)


@pytest.mark.parametrize("name", kinds(*KINDS))
def test_a_case_that_is_cut_short_loses_nothing(
    servers: Callable[[str], Server], name: str
) -> None:
    """What was not acknowledged is in the queue, and the next consumers get it."""
    server = servers(name)
    wire = server.queue_wire()
    with queues.a_queue(server) as queue:
        filled = wire.fill(queue, MESSAGES, size=SIZE, per_batch=1)
        taken = some(server, queue, filled, ONE)
        assert 0 < taken < filled


def some(server: Server, queue: str, filled: int, asking: Asking) -> int:
    """Consumes until some messages have come; how many were given out in the end."""
    wire, load = server.queue_wire(), queues.QueueLoad(server)
    try:
        socks = [connect(server) for _ in range(2)]
        workers = wire.consumers(queue, socks, asking)
        for sock, worker in zip(socks, workers, strict=True):
            load.add(sock, worker)
        load.begin()
        load.run(filled // 10, waiting.CALL_SECONDS_MAX)
        load.drain()
        given = load.messages
    finally:
        load.close()
    wire.check(queue, workers, filled)
    return given


@pytest.mark.parametrize("name", kinds(*KINDS))
def test_a_message_that_is_gone_is_noticed(
    servers: Callable[[str], Server], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else takes a message: the queue holds less than was not acknowledged here."""
    monkeypatch.setattr(queue_wire, "DRAINED_S_MAX", 0.5)
    server = servers(name)
    wire = server.queue_wire()
    with queues.a_queue(server) as queue:
        filled = wire.fill(queue, MESSAGES, size=SIZE, per_batch=1)
        with pytest.raises(PeerError, match=f"{filled + 1} are not acknowledged"):
            wire.check(queue, wire.consumers(queue, [connected(server)], ONE), filled + 1)


def connected(server: Server) -> socket.socket:
    return connect(server)


def test_kinds_without_share_groups_say_so() -> None:
    [share], [one] = rows("8 consumers on"), rows("one message at a time")
    assert share.impossible(NatsServer) == "has no share groups"
    assert one.impossible(NatsServer) is None
    assert one.impossible(RedisServer) == "not compared as a queue"
    with pytest.raises(PeerError, match="not compared as a queue"):
        RedisServer(Path()).queue_wire()


@pytest.mark.peers
def test_other_queues_give_out_single_messages_only(servers: Callable[[str], Server]) -> None:
    for name in ("nats", "rabbitmq"):
        if KINDS[name].missing() is None:
            with pytest.raises(PeerError, match="one by one"):
                servers(name).queue_wire().consumers("queue", [], BY_DEFAULT)


@pytest.mark.peers
def test_a_killed_leader_is_timed_and_nothing_is_left(tmp_path: Path) -> None:
    found = queue_nodes.measure("penstock", tmp_path, SECONDS)
    assert found.keys() == {queue_nodes.KILL.name}
    assert found[queue_nodes.KILL.name]["s"] > 0
    assert list(tmp_path.iterdir()) == []
