"""Quotas met by real clients: they are told to wait, and get about what they may use."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

from penstock.wire.messages.api_versions import ApiVersionsRequest
from support.batches import batch
from support.calls import find_topic, produce_request
from support.helpers import QUIET, make_topic
from support.node import NodeProcess
from support.process import BrokerProcess
from support.quotas import described, set_quotas
from support.raw import RawClient
from support.reference import java_command
from support.tools import Tools
from support.waiting import CALL_SECONDS_MAX, eventually

RATE = 200_000.0
BYTES = 1_000_000
VALUE = bytes(10_000)
WINDOW_S = 1.0
"""With two samples of one second a client may use its rate for one second, or a bit more, at
first.
"""
BATCH_BYTES = 20_000
UNDER_WAY_MAX = 5
"""Requests that a client sends without an answer; after the last ones it waits for nothing."""
LEAST_S = (BYTES - UNDER_WAY_MAX * BATCH_BYTES) / RATE - 2 * WINDOW_S
MOST_S = 4 * BYTES / RATE
JAVA = Path(__file__).parent / "java" / "Quotas.java"
JAVA_SECONDS_MAX = 200


@pytest.fixture(scope="module")
def broker(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    made = broker_maker(tmp_path_factory.mktemp("quotas"))
    made.settings |= {"quota.window.num": "2", "controller.quota.window.num": "2"}
    with made:
        yield made


def produced(broker: BrokerProcess, topic: str, **settings: Any) -> tuple[float, list[float]]:
    """How long it took, and what the client was told to wait."""
    waits: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "batch.size": BATCH_BYTES,
            "max.in.flight": UNDER_WAY_MAX,
            "throttle_cb": lambda event: waits.append(event.throttle_time),
            **QUIET,
            **settings,
        }
    )
    began = time.monotonic()
    for _ in range(BYTES // len(VALUE)):
        producer.produce(topic, VALUE)
    assert producer.flush(CALL_SECONDS_MAX) == 0
    return time.monotonic() - began, waits


def test_librdkafka_is_held_to_its_rates(
    broker: BrokerProcess, topic_name: Callable[[], str]
) -> None:
    topic = make_topic(broker, topic_name())
    set_quotas(broker, {"client-id": "rd"}, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    assert produced(broker, topic, **{"client.id": "free"})[1] == []
    took_s, waits = produced(broker, topic, **{"client.id": "rd"})
    assert LEAST_S < took_s < MOST_S
    assert waits
    assert max(waits) > 0

    told: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "rd",
            "group.id": topic,
            "message.max.bytes": 100_000,
            "fetch.max.bytes": 100_000,
            "fetch.message.max.bytes": 100_000,
            "throttle_cb": lambda event: told.append(event.throttle_time),
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, seen = time.monotonic(), 0
    while seen < BYTES and time.monotonic() - began < 2 * MOST_S:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            seen += len(message.value())
    took_s = time.monotonic() - began
    consumer.close()
    assert seen == BYTES
    assert took_s > LEAST_S
    assert told


def test_kafka_python_measures_its_waits(
    broker: BrokerProcess, topic_name: Callable[[], str]
) -> None:
    topic = make_topic(broker, topic_name())
    set_quotas(broker, {"client-id": "python"}, producer_byte_rate=RATE)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, client_id="python", batch_size=20_000
    )
    began = time.monotonic()
    for _ in range(BYTES // len(VALUE)):
        producer.send(topic, VALUE)
    producer.flush(timeout=CALL_SECONDS_MAX)
    took_s = time.monotonic() - began
    measured = [
        value
        for group in producer.metrics().values()
        for name, value in group.items()
        if "throttle-time-max" in name
    ]
    producer.close()
    assert LEAST_S < took_s < MOST_S
    assert max(measured) > 0


@pytest.mark.java
@pytest.mark.timeout(JAVA_SECONDS_MAX + 30)
def test_java_sets_describes_and_meets_quotas(
    broker: BrokerProcess, topic_name: Callable[[], str]
) -> None:
    topic = make_topic(broker, topic_name())
    before = len(described(broker)[1])
    command = java_command(str(JAVA), broker.bootstrap, topic)
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_SECONDS_MAX)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-3000:]
    said = json.loads(lines[-1])
    assert said["described"] == 5 + before
    assert (said["producer"], said["default"]) == (100_000.0, {"request_percentage": 5_000.0})
    assert said["refused"] == "InvalidRequestException"
    assert 2 < said["produced_s"] < 20
    assert said["produce_throttle_ms"] > 0
    assert said["consumed"] == 50
    assert 2 < said["consumed_s"] < 30
    assert said["fetch_throttle_ms"] > 0
    assert said["exceeded"] == "ThrottlingQuotaExceededException"
    assert 0 < said["exceeded_ms"] <= 5_000
    assert said["retried"]
    assert said["left"] == 0


@pytest.mark.java
def test_kafka_configs_sets_and_shows_quotas(broker: BrokerProcess) -> None:
    tools = Tools()

    def run(*args: str) -> str:
        return tools.output("configs", "--bootstrap-server", broker.bootstrap, *args)

    try:
        for entity, key, value in (
            (("--entity-type", "users", "--entity-name", "tool"), "producer_byte_rate", "1024"),
            (("--entity-type", "users", "--entity-default"), "request_percentage", "75.5"),
            (("--entity-type", "clients", "--entity-name", "tool"), "consumer_byte_rate", "2048"),
            (
                (
                    *("--entity-type", "users", "--entity-name", "tool"),
                    *("--entity-type", "clients", "--entity-default"),
                ),
                "controller_mutation_rate",
                "3.5",
            ),
            (
                ("--entity-type", "ips", "--entity-name", "10.2.3.4"),
                "connection_creation_rate",
                "7",
            ),
        ):
            assert "Completed" in run("--alter", "--add-config", f"{key}={value}", *entity)
            eventually(lambda e=entity, k=key: f"{k}=" in run("--describe", *e))
            assert f"{key}={float(value)}" in run("--describe", *entity)
            run("--alter", "--delete-config", key, *entity)
            eventually(lambda e=entity, k=key: f"{k}=" not in run("--describe", *e))
    finally:
        tools.close()


def test_an_address_that_connects_too_often_is_held_and_closed(broker: BrokerProcess) -> None:
    set_quotas(broker, {"ip": "127.0.0.1"}, connection_creation_rate=5)
    try:
        opened = [socket.create_connection((broker.host, broker.port)) for _ in range(30)]
        served, refused = [], 0
        for one in opened:
            one.settimeout(CALL_SECONDS_MAX)
            client = RawClient.__new__(RawClient)
            client.socket, client.client_id, client._last_id = one, "raw", 0
            try:
                client.call(ApiVersionsRequest(), 0)
                served.append(one)
            except Exception:
                refused += 1
            one.close()
        assert 1 <= len(served) <= 15
        assert refused == 30 - len(served)
        # When the window is over it is let in again.
        eventually(lambda: _is_served(broker))
    finally:
        eventually(lambda: _reset(broker))


def _is_served(broker: BrokerProcess) -> bool:
    try:
        with RawClient(broker.host, broker.port) as client:
            client.call(ApiVersionsRequest(), 0)
    except Exception:
        return False
    return True


def _reset(broker: BrokerProcess) -> bool:
    try:
        set_quotas(broker, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    except Exception:
        return False
    return True


@pytest.mark.penstock_only
def test_quotas_hold_after_a_start_from_a_snapshot(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, {"metadata.log.max.record.bytes.between.snapshots": "100"}) as node:
        topic = make_topic(node, "bounded")
        set_quotas(node, {"client-id": "rd"}, producer_byte_rate=1_000.0)
        make_topic(node, "one-more")
        eventually(lambda: list(node.data_dir.glob("__cluster_metadata-0/*-*.checkpoint")))
        node.restart()
        with RawClient(node.host, node.port, client_id="rd") as client:
            request = produce_request(find_topic(client, topic), batch([bytes(20_000)]), 12)
            assert client.call(request, 12).throttle_time_ms > 0
