"""Broker settings that are changed while a node runs: each has its effect at once, and is kept."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.batches import Rec, batch
from support.calls import RawTopic, find_topic, init_producer, produce
from support.helpers import make_topic
from support.node import NodeProcess
from support.process import BrokerProcess, free_port
from support.raw import Closed, RawClient
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only

BROKER, SET, DELETE = 4, 0, 1
OWN, CLUSTER, STATIC = 2, 3, 4
MESSAGE_TOO_LARGE = 10
NODE_ID, WHOLE_CLUSTER = "1", ""
SETTINGS = {
    "producer.id.expiration.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "queued.max.requests": "7",
}


@pytest.fixture(scope="module")
def running_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("dynamic"), SETTINGS) as made:
        yield made


@pytest.fixture
def changes(running_node: NodeProcess) -> Iterator[Changes]:
    """The means to change settings; they are taken back when the test is over."""
    made = Changes(running_node)
    yield made
    made.take_back()


class Changes:
    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.client = RawClient(node.host, node.port)
        self._made: list[tuple[str, str]] = []

    def set(self, name: str, value: str, of: str = WHOLE_CLUSTER) -> None:
        self._made.append((of, name))
        code, message = self.answer(name, SET, value, of)
        assert code == 0, message

    def answer(self, name: str, op: int, value: str | None, of: str) -> tuple[int, str]:
        change = AlterableConfig(name=name, config_operation=op, value=value)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=of, configs=[change])
        answer = self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        [response] = answer.responses
        return response.error_code, response.error_message

    def shown(self, name: str) -> tuple[str | None, int, bool]:
        """Value, source and whether it is read-only."""
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=NODE_ID, configuration_keys=[name]
        )
        [result] = self.client.call(DescribeConfigsRequest(resources=[resource]), 4).results
        [config] = result.configs
        return config.value, config.config_source, config.read_only

    def take_back(self) -> None:
        for of, name in self._made:
            assert self.answer(name, DELETE, None, of)[0] == 0
        self.client.close()


def connects(node: BrokerProcess, port: int | None = None) -> bool:
    try:
        with RawClient(node.host, port or node.port) as client:
            return bool(client.call(ApiVersionsRequest(), 0).error_code == 0)
    except (Closed, OSError):
        return False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.connections", "3"),
        ("max.connections.per.ip", "3"),
        ("max.connections.per.ip.overrides", "127.0.0.1:3,127.0.0.9:1"),
        ("listener.name.plaintext.max.connections", "3"),
    ],
)
def test_limits_of_connections(changes: Changes, name: str, value: str) -> None:
    node = changes.node
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(RawClient(node.host, node.port)).call(ApiVersionsRequest(), 0)
        assert connects(node)
        changes.set(name, value)
        eventually(lambda: not connects(node))
        assert changes.shown(name)[:2] == (value, CLUSTER)
    eventually(lambda: connects(node))


def test_the_rate_of_new_connections(changes: Changes) -> None:
    changes.set("max.connection.creation.rate", "2")
    eventually(lambda: changes.shown("max.connection.creation.rate")[0] == "2")
    started = time.monotonic()
    for _ in range(6):
        assert connects(changes.node), "it waits, and is not closed"
    assert time.monotonic() - started > 1.5, "two at once, the others half a second apart"


def producers(client: RawClient, topic: RawTopic) -> list[int]:
    asked = TopicRequest(name=topic.name, partition_indexes=[0])
    answer = client.call(DescribeProducersRequest(topics=[asked]), 0)
    [partition] = answer.topics[0].partitions
    return [producer.producer_id for producer in partition.active_producers]


def test_idle_producers_are_forgotten(changes: Changes) -> None:
    make_topic(changes.node, "expiring")
    topic, client = find_topic(changes.client, "expiring"), changes.client
    producer_id, epoch = init_producer(client)
    now = Rec(b"x", timestamp=int(time.time() * 1000))
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch}
    assert produce(client, topic, batch([now], base_sequence=0, **fields)).error_code == 0
    assert producers(client, topic) == [producer_id]
    changes.set("producer.id.expiration.ms", "50")
    eventually(lambda: producers(client, topic) == [])


def test_larger_messages(changes: Changes) -> None:
    make_topic(changes.node, "sizes")
    topic = find_topic(changes.client, "sizes")
    large = batch([b"x" * 2000])
    assert produce(changes.client, topic, large).error_code == 0
    changes.set("message.max.bytes", "1000")
    eventually(
        lambda: produce(changes.client, topic, large).error_code == MESSAGE_TOO_LARGE, every=0.2
    )


def test_listeners_are_opened_and_closed(changes: Changes) -> None:
    node, port = changes.node, free_port()
    here = f"PLAINTEXT://{node.host}:{node.port}"
    assert not connects(node, port)
    changes.set("listeners", f"{here},EXTRA://127.0.0.1:{port}", of=NODE_ID)
    eventually(lambda: connects(node, port))
    changes.set("listeners", here, of=NODE_ID)
    eventually(lambda: not connects(node, port))
    code, message = changes.answer("listeners", SET, f"EXTRA://127.0.0.1:{port}", NODE_ID)
    assert (code, "is advertised, so it has to stay" in message) == (42, True)
    code, message = changes.answer("listeners", SET, f"{here},SSL://127.0.0.1:{port}", NODE_ID)
    assert (code, "needs a certificate" in message) == (42, True)
    assert connects(node)


def cleaners(pid: int) -> int:
    """The child processes of the node that compact logs."""
    found = 0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        with contextlib.suppress(OSError):
            found += b"cleaner_worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="children are found in /proc")
def test_more_logs_are_compacted_at_a_time(changes: Changes) -> None:
    changes.set("log.cleaner.threads", "2")
    config = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"}
    make_topic(changes.node, "compacted", 8, config=config)
    topic = find_topic(changes.client, "compacted")

    def fill() -> bool:
        records = batch([Rec(b"v", key=b"k", timestamp=int(time.time() * 1000))])
        for partition in range(8):
            assert produce(changes.client, topic, records, partition=partition).error_code == 0
        return cleaners(changes.node.pid) == 2

    eventually(fill, every=0.2)
    changes.set("log.cleaner.threads", "1")
    eventually(lambda: cleaners(changes.node.pid) == 1)


def test_what_has_no_effect_is_taken_told_and_kept(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, {"queued.max.requests": "7"}) as node:
        changes = Changes(node)
        assert changes.shown("queued.max.requests") == ("7", STATIC, True)
        changes.set("num.io.threads", "12")
        changes.set("num.io.threads", "13", of=NODE_ID)
        changes.set("max.connections.per.ip", "500")
        assert changes.shown("num.io.threads") == ("13", OWN, False)
        code, message = changes.answer("num.io.threads", SET, "many", WHOLE_CLUSTER)
        assert (code, message) == (
            42,
            "num.io.threads cannot be 'many': it must be a 32-bit whole number of at least 1",
        )
        code, message = changes.answer("principal.builder.class", SET, "mine.Builder", NODE_ID)
        assert (code, "loads no Java classes" in message) == (42, True)
        assert changes.answer("no.such", SET, "1", NODE_ID)[0] == 42
        changes.client.close()
        node.restart()
        changes = Changes(node)
        assert changes.shown("num.io.threads") == ("13", OWN, False)
        assert changes.shown("max.connections.per.ip") == ("500", CLUSTER, False)
        changes.take_back()
    told = [line for line in node.log_path.read_text().splitlines() if "no effect here" in line]
    assert [line.partition("settings=")[2] for line in told] == [
        "queued.max.requests",
        "num.io.threads",
        "queued.max.requests",
        "num.io.threads",
    ]
