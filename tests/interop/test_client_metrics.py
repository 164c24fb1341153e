"""Metrics of clients: subscriptions by Apache's tools, and what real clients push."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock.base.errors import ErrorCode as E
from penstock.wire.messages import alter_configs
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from support.helpers import make_topic
from support.node import NodeProcess
from support.process import BrokerProcess
from support.raw import RawClient
from support.reference import java_command
from support.tools import Tools
from support.waiting import eventually

CLIENT_METRICS = 16
OF_SUBSCRIPTION, DEFAULT = 7, 5
SET, DELETE, APPEND = 0, 1, 2
JAVA = Path(__file__).parent / "java" / "Telemetry.java"
JAVA_SECONDS_MAX = 60.0


@pytest.fixture
def client(node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(node.host, node.port) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


def alter(client: RawClient, name: str, key: str, value: str | None, op: int = SET) -> int:
    change = AlterableConfig(name=key, config_operation=op, value=value)
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=[change]
    )
    [answer] = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return int(answer.error_code)


def shown(client: RawClient, name: str) -> dict[str, Any]:
    """Value, source, type and how many values there are, by the names of the settings."""
    resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [answer] = client.call(request, 4).results
    assert answer.error_code == 0
    return {
        c.name: (c.value, c.config_source, c.config_type, len(c.synonyms)) for c in answer.configs
    }


def listed(client: RawClient, version: int) -> set[str]:
    types = [] if version == 0 else [CLIENT_METRICS]
    answer = client.call(ListConfigResourcesRequest(resource_types=types), version)
    return {resource.resource_name for resource in answer.config_resources}


def test_a_subscription_is_its_settings(client: RawClient, name: str) -> None:
    nothing = {
        "metrics": ("", DEFAULT, 7, 0),
        "interval.ms": ("300000", DEFAULT, 3, 0),
        "match": ("", DEFAULT, 7, 0),
    }
    assert shown(client, name) == nothing
    assert alter(client, name, "metrics", "a., b.") == 0
    mine = nothing | {"metrics": ("a.,b.", OF_SUBSCRIPTION, 7, 1)}
    eventually(lambda: shown(client, name) == mine)
    assert name in listed(client, 0) & listed(client, 1)
    replaced = alter_configs.AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name="interval.ms", value="100")],
    )
    request = alter_configs.AlterConfigsRequest(resources=[replaced])
    assert client.call(request, 2).responses[0].error_code == 0
    eventually(lambda: shown(client, name)["metrics"] == nothing["metrics"])
    assert alter(client, name, "interval.ms", None, DELETE) == 0
    eventually(lambda: name not in listed(client, 0) | listed(client, 1))


@pytest.mark.parametrize(
    ("key", "value", "op", "code"),
    [
        ("interval.ms", "100", SET, E.NONE),
        ("interval.ms", "3600000", SET, E.NONE),
        ("interval.ms", "99", SET, E.INVALID_REQUEST),
        ("interval.ms", "3600001", SET, E.INVALID_REQUEST),
        ("interval.ms", "soon", SET, E.INVALID_CONFIG),
        ("interval.ms", None, SET, E.INVALID_REQUEST),
        ("metric", "a", SET, E.INVALID_REQUEST),
        ("metric", None, DELETE, E.NONE),
        ("metrics", "*", SET, E.NONE),
        ("metrics", "", SET, E.NONE),
        ("metrics", "a,b,a", SET, E.NONE),
        ("metrics", "a,,b", SET, E.INVALID_CONFIG),
        ("metrics", "a", APPEND, E.INVALID_CONFIG),
        ("match", "client_id=a.*, client_software_version = 4.*", SET, E.NONE),
        ("match", "client_source_port=[0-9]+", SET, E.NONE),
        ("match", "client_id", SET, E.INVALID_CONFIG),
        ("match", "client_id=", SET, E.INVALID_CONFIG),
        ("match", "client_id=a=b", SET, E.INVALID_CONFIG),
        ("match", "client_name=a", SET, E.INVALID_CONFIG),
        ("match", "client_id=(", SET, E.INVALID_CONFIG),
    ],
)
def test_what_a_subscription_can_be(
    client: RawClient, name: str, key: str, value: str | None, op: int, code: E
) -> None:
    assert E(alter(client, name, key, value, op)) == code


def test_a_subscription_has_a_name(client: RawClient) -> None:
    assert alter(client, "", "metrics", "a") == E.INVALID_REQUEST
    resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="")
    [answer] = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert answer.error_code == E.INVALID_REQUEST


@pytest.mark.java
def test_apaches_tools_make_and_show_subscriptions(
    node: BrokerProcess, client: RawClient, name: str
) -> None:
    tools = Tools()
    where = ["--bootstrap-server", node.bootstrap]
    try:
        said = tools.output(
            "client-metrics", *where, "--alter", "--name", name, "--metrics", "a.,b.",
            "--interval", "60000", "--match", "client_id=c.*,client_software_name=d",
        )  # fmt: skip
        assert f"Altered client metrics config for {name}." in said
        eventually(lambda: name in listed(client, 1))
        assert name in tools.output("client-metrics", *where, "--list").split()
        said = tools.output("client-metrics", *where, "--describe", "--name", name)
        for line in ("metrics=a.,b.", "interval.ms=60000", "match=client_id=c.*,client_software_n"):
            assert line in said
        entity = ["--entity-type", "client-metrics", "--entity-name", name]
        said = tools.output("configs", *where, "--describe", *entity)
        assert "interval.ms=60000" in said
        tools.output("configs", *where, "--alter", *entity, "--add-config", "interval.ms=100")
        eventually(lambda: shown(client, name)["interval.ms"][0] == "100")
        said = tools.output("client-metrics", *where, "--delete", "--name", name)
        assert f"Deleted client metrics config for {name}." in said
        eventually(lambda: name not in listed(client, 1))
    finally:
        tools.close()


# -- what clients push -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pushed_to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that asks every client for everything, ten times a second."""
    with NodeProcess(tmp_path_factory.mktemp("pushed")) as made:
        with RawClient(made.host, made.port) as client:
            assert alter(client, "all", "metrics", "*") == 0
            assert alter(client, "all", "interval.ms", "100") == 0
        yield made


def of_client(node: NodeProcess, client_id: str) -> dict[str, float]:
    """What a client has pushed, by the client's names."""
    return {
        labels["metric"]: value
        for name, labels, value in node.metrics()
        if name in ("penstock_client_gauge", "penstock_client_sum_total")
        and labels["client_id"] == client_id
    }


def software_of(node: NodeProcess, client_id: str) -> set[tuple[str, str]]:
    return {
        (labels["software_name"], labels["client_instance_id"])
        for name, labels, _ in node.metrics()
        if name == "penstock_client_info" and labels["client_id"] == client_id
    }


@contextmanager
def java_clients(node: NodeProcess, topic: str, name: str) -> Iterator[list[str]]:
    """A producer and a consumer in a JVM; the ids of their instances."""
    process = subprocess.Popen(
        java_command(str(JAVA), node.bootstrap, topic, name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield [process.stdout.readline().strip() for _ in range(2)]
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(JAVA_SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.java
@pytest.mark.penstock_only
def test_apaches_clients_push_their_metrics(pushed_to: NodeProcess, name: str) -> None:
    topic = make_topic(pushed_to, f"t-{name}")
    sent = "org.apache.kafka.producer.connection.creation.total"
    read = "org.apache.kafka.consumer.coordinator.heartbeat.total"
    with java_clients(pushed_to, topic, name) as ids:
        producer, consumer = f"{name}-producer", f"{name}-consumer"
        eventually(lambda: of_client(pushed_to, producer).get(sent, 0) > 0, JAVA_SECONDS_MAX)
        eventually(lambda: len(of_client(pushed_to, consumer)) > 20, JAVA_SECONDS_MAX)
        for client_id, instance in zip((producer, consumer), ids, strict=True):
            assert software_of(pushed_to, client_id) == {("apache-kafka-java", instance)}
        before = pushed_to.metric("penstock_client_pushes_total")
        eventually(lambda: pushed_to.metric("penstock_client_pushes_total") > before + 4)
    found = of_client(pushed_to, consumer)
    assert read in found or any("heartbeat" in metric for metric in found), sorted(found)
    errors = pushed_to.metric("penstock_request_errors_total", api="PushTelemetry")
    assert errors == 0, "a push was refused"


@pytest.mark.penstock_only
def test_librdkafkas_clients_push_their_metrics(pushed_to: NodeProcess, name: str) -> None:
    topic = make_topic(pushed_to, f"t-{name}")
    at = {"bootstrap.servers": pushed_to.bootstrap, "enable.metrics.push": True}
    producer = Producer({**at, "client.id": f"{name}-producer"})
    reading = {**at, "client.id": f"{name}-consumer", "group.id": name}
    consumer = Consumer({**reading, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:

        def pushed(client_id: str) -> dict[str, float]:
            producer.produce(topic, b"value")
            producer.flush(10)
            consumer.poll(0.05)
            return of_client(pushed_to, client_id)

        latency = "org.apache.kafka.producer.node.request.latency.max"
        eventually(lambda: pushed(f"{name}-producer").get(latency, 0) > 0)
        polled = "org.apache.kafka.consumer.poll.idle.ratio.avg"
        eventually(lambda: polled in pushed(f"{name}-consumer"))
        [(software, _)] = software_of(pushed_to, f"{name}-producer")
        assert "librdkafka" in software or "confluent" in software
    finally:
        consumer.close()
