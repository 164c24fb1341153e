"""Apache Kafka as the referee of broker settings: what is known, and what changes while running.

Every setting that Kafka describes is set on both brokers, for the broker and for the whole cluster,
to a value that is good and to one that is not; nothing is stored. What differs on purpose stands in
tables below, with its reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.process import BrokerProcess
from support.raw import RawClient
from support.referee import Script

pytestmark = pytest.mark.java

BROKER, SET = 4, 0
NO_ERROR, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
NUMBERS = {INT, SHORT, LONG, DOUBLE}


class Asked:
    """One broker, asked over one connection."""

    def __init__(self, broker: BrokerProcess) -> None:
        script = Script(broker, "settings")
        self.node_id = str(script.node_id)
        script.close()
        self.client = RawClient(broker.host, broker.port, seconds=10)

    def described(self) -> dict[str, Any]:
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=self.node_id, configuration_keys=None
        )
        answer = self.client.call(DescribeConfigsRequest(resources=[resource]), 4)
        return {config.name: config for config in answer.results[0].configs}

    def set(self, level: str, name: str, value: str) -> int:
        """The error code of setting it, without really doing so."""
        change = AlterableConfig(name=name, config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=BROKER,
            resource_name=self.node_id if level == "broker" else "",
            configs=[change],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        return int(self.client.call(request, 1).responses[0].error_code)


class Both(NamedTuple):
    kafka: Asked
    node: Asked


@pytest.fixture(scope="module")
def both(kafka: BrokerProcess, shared_node: BrokerProcess) -> Both:
    return Both(Asked(kafka), Asked(shared_node))


# Answers that differ on purpose: level and name, Kafka's code and ours, and why.
DEVIATIONS = {
    ("broker", "config.providers"): (0, 42, "values are taken as they stand"),
    ("cluster", "config.providers"): (0, 42, "values are taken as they stand"),
    **{
        ("broker", f"ssl.{name}"): (42, 0, "in Kafka for one listener only, here for all as well")
        for name in (
            "keystore.type",
            "keystore.location",
            "keystore.key",
            "keystore.certificate.chain",
            "key.password",
            "truststore.type",
            "truststore.location",
            "truststore.certificates",
        )
    },
    ("broker", "cordoned.log.dirs"): (42, 0, "a node has one folder; any name is that one"),
    ("broker", "listener.security.protocol.map"): (
        *(42, 0),
        "Kafka has a listener for controllers here, which must be named",
    ),
}
# Described with another type, read-only flag or sensitivity.
DESCRIBED_OTHERWISE = {"log.dir": "it is one folder, not a list"}
OF_LISTENERS = (
    ("listener.name.plaintext.max.connections", "100"),
    ("listener.name.plaintext.max.connections", "soon"),
    ("listener.name.plaintext.max.connection.creation.rate", "100"),
    ("listener.name.plaintext.num.network.threads", "4"),
)


def good(config: Any) -> str:
    """A value that it may have, another one than it has where that is easy to say."""
    if config.config_type in (INT, LONG) and config.value is not None:
        number = int(config.value)
        return str(number + 1 if 0 < number < 2**31 - 1 else number)
    if config.value not in (None, ""):
        return str(config.value)
    return {INT: "1", LONG: "1000", BOOLEAN: "true"}.get(config.config_type, "x")


def test_every_setting_that_kafka_describes_is_described_alike(both: Both) -> None:
    kafkas, ours = both.kafka.described(), both.node.described()
    assert len(kafkas) > 300
    assert set(kafkas) <= set(ours)
    otherwise = {
        name
        for name, config in kafkas.items()
        for field in ("read_only", "config_type", "is_sensitive")
        if getattr(config, field) != getattr(ours[name], field)
    }
    assert otherwise == set(DESCRIBED_OTHERWISE)


@pytest.mark.parametrize("level", ["broker", "cluster"])
def test_the_same_settings_can_be_changed_while_running(both: Both, level: str) -> None:
    kafkas, ours = both.kafka.described(), both.node.described()
    taken, found = 0, {}
    for name, config in kafkas.items():
        codes = (
            both.kafka.set(level, name, good(config)),
            both.node.set(level, name, good(ours[name])),
        )
        assert set(codes) <= {NO_ERROR, INVALID_REQUEST, INVALID_CONFIG}
        taken += codes[1] == NO_ERROR
        if codes[0] != codes[1]:
            found[level, name] = codes
    expected = {key: row[:2] for key, row in DEVIATIONS.items() if key[0] == level}
    assert found == expected
    assert taken > (70 if level == "broker" else 55)


@pytest.mark.parametrize("level", ["broker", "cluster"])
def test_what_is_no_value_is_refused_alike(both: Both, level: str) -> None:
    for name, config in both.kafka.described().items():
        if config.config_type in NUMBERS | {BOOLEAN}:
            assert both.kafka.set(level, name, "soon") == INVALID_REQUEST, name
            assert both.node.set(level, name, "soon") == INVALID_REQUEST, name


@pytest.mark.parametrize("level", ["broker", "cluster"])
def test_settings_of_one_listener(both: Both, level: str) -> None:
    for name, text in OF_LISTENERS:
        codes = both.kafka.set(level, name, text), both.node.set(level, name, text)
        assert codes[0] == codes[1], (name, text)
