"""Kafka's settings that a node has no use for: taken and shown, or refused where that would lie."""

from __future__ import annotations

import pytest

from penstock.config.broker_config import BROKER_SETTINGS, broker_config
from penstock.config.layers import BrokerSettings, ConfigEntry, ConfigSource
from penstock.config.table import ConfigError, Only, SettingType, UpdateMode, value_text

KAFKA = BROKER_SETTINGS.kafka

# What the server.properties of Kafka's distribution sets.
STOCK_FILE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def described(settings: BrokerSettings) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in settings.describe_broker()}


def refusal(**texts: str) -> str:
    with pytest.raises(ConfigError) as refused:
        broker_config({name.replace("_", "."): text for name, text in texts.items()})
    return str(refused.value)


def test_the_file_of_kafkas_distribution_is_taken() -> None:
    config = broker_config(STOCK_FILE)
    assert [name for name, _ in config.without_effect] == [
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
    ]
    assert config.bootstrap_servers == (), "it is told to join itself: a cluster of its own"


@pytest.mark.parametrize(
    ("servers", "others"),
    [
        ("localhost:9093", ()),
        ("127.0.0.1:9092,[::1]:9093", ()),
        ("alpha.example:9092,beta.example:9092", (("beta.example", 9092),)),
        ("localhost:9094,alpha.example:9093", (("localhost", 9094), ("alpha.example", 9093))),
    ],
)
def test_a_node_does_not_join_itself(servers: str, others: tuple[tuple[str, int], ...]) -> None:
    config = broker_config(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093",
            "advertised.listeners": "PLAINTEXT://alpha.example:9092",
            "controller.quorum.bootstrap.servers": servers,
        }
    )
    assert config.bootstrap_servers == others


def test_every_setting_without_effect_takes_its_own_default() -> None:
    texts = {name: value_text(row.default) for name, row in KAFKA.rows.items()}
    given = {name: text for name, text in texts.items() if text is not None}
    assert dict(broker_config(given).without_effect) == given


def test_no_setting_stands_in_both_tables() -> None:
    assert set(BROKER_SETTINGS.rows).isdisjoint({**KAFKA.rows, **KAFKA.older})
    assert set(KAFKA.rows).isdisjoint(KAFKA.older)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "many"),
        ("num.io.threads", "0"),
        ("num.io.threads", "4294967296"),
        ("group.share.delivery.count.limit", "11"),
        ("remote.log.manager.task.retry.jitter", "0.6"),
        ("unstable.api.versions.enable", "yes"),
        ("listener.name.inside.sasl.server.max.receive.size", "large"),
    ],
)
def test_a_value_must_have_kafkas_type_and_bounds(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be '{text}': it must be"):
        broker_config({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("security.inter.broker.protocol", "SSL"),
        ("principal.builder.class", "mine.Builder"),
        ("listener.name.outside.sasl.server.callback.handler.class", "mine.Handler"),
        ("sasl.oauthbearer.token.endpoint.url", "https://tokens"),
    ],
)
def test_what_asks_for_security_that_is_not_there_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="a node loads no Java classes") as refused:
        broker_config({name: text})
    assert str(refused.value).startswith(f"{name} cannot be ")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("create.topic.policy.class.name", "mine.Policy", "loads no Java classes"),
        ("config.providers", "file", "values are taken as they stand"),
        ("remote.log.storage.system.enable", "true", "there is no remote tier"),
        ("transaction.two.phase.commit.enable", "true", "no two-phase commit"),
        ("process.roles", "controller", "every node is one"),
        ("process.roles", "broker,observer", "each element one of broker, controller"),
        ("authorizer.class.name", "mine.Authorizer", "StandardAuthorizer"),
        ("zookeeper.connect", "localhost:2181", "controller.quorum.voters"),
    ],
)
def test_what_would_promise_too_much_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        broker_config({name: text})


def test_the_password_of_a_refused_setting_is_not_shown() -> None:
    assert "secret" not in refusal(ssl_keystore_password="secret")


def test_a_map_of_protocols_must_be_one() -> None:
    assert "NAME:PROTOCOL" in refusal(listener_security_protocol_map="PLAINTEXT")
    assert "NAME:PROTOCOL" in refusal(listener_security_protocol_map="A:TLS")
    assert "twice" in refusal(listener_security_protocol_map="A:PLAINTEXT,a:PLAINTEXT")
    plain = {"listeners": "SSL://:1", "listener.security.protocol.map": "SSL:PLAINTEXT"}
    assert broker_config(plain).listen[0].name == "SSL"


def test_the_older_name_of_the_id_counts() -> None:
    assert broker_config({"broker.id": "7"}).node_id == 7
    assert broker_config({"broker.id": "7", "node.id": "7"}).node_id == 7
    assert broker_config({"broker.id": "-1"}).node_id == 1
    assert "the same setting" in refusal(broker_id="7", node_id="8")


def test_an_unknown_name_is_refused_and_the_likely_one_named() -> None:
    assert refusal(num_io_thread="3") == (
        "there is no broker setting 'num.io.thread'; did you mean num.io.threads?"
    )
    assert "there is no broker setting" in refusal(listener_name_a_no_such="1")
    assert "there is no broker setting" in refusal(listener_name="1")


def test_they_are_described_with_their_value_and_that_they_have_no_effect() -> None:
    settings = BrokerSettings.of(
        broker_config({"num.io.threads": "9", "inter.broker.protocol.version": "3.9"})
    )
    shown = described(settings)
    threads = shown["num.io.threads"]
    assert (threads.value, threads.source, threads.type) == (
        "9",
        ConfigSource.STATIC_BROKER_CONFIG,
        SettingType.INT,
    )
    assert threads.documentation.startswith("Has no effect: ")
    assert shown["num.network.threads"].value == "3"
    assert shown["inter.broker.protocol.version"].value == "3.9"
    assert "inter.broker.protocol.version" not in described(BrokerSettings({}))
    assert shown["sasl.jaas.config"].sensitive


def test_each_is_told_once() -> None:
    settings = BrokerSettings({"num.io.threads": "9"})
    assert settings.new_without_effect() == ["num.io.threads"]
    assert settings.new_without_effect() == []
    settings.update({"background.threads": "4"}, {"num.io.threads": "7"})
    assert settings.new_without_effect() == ["background.threads"]


def test_kafkas_further_group_protocols_are_taken_and_told_once() -> None:
    name = "group.coordinator.rebalance.protocols"
    settings = BrokerSettings({name: "classic,streams,share"})
    assert described(settings)[name].value == "classic,streams,share"
    assert "has no effect" in described(settings)[name].documentation
    assert settings.config.protocols_without_effect == ("share",)
    assert settings.new_without_effect() == [f"{name}=share"]
    assert settings.new_without_effect() == []
    assert broker_config({name: "classic,consumer,streams"}).protocols_without_effect == ()
    assert BrokerSettings({}).new_without_effect() == []
    assert "it must name classic" in refusal(group_coordinator_rebalance_protocols="consumer")
    assert "each element one of" in refusal(group_coordinator_rebalance_protocols="connect")


def test_a_refused_one_takes_nothing_but_its_default() -> None:
    refused = [row for row in KAFKA.rows.values() if isinstance(row.rule, Only)]
    assert len(refused) > 20
    for row in refused:
        assert row.type is not SettingType.PASSWORD or row.default is None


def test_a_dynamic_one_takes_the_place_of_the_files() -> None:
    settings = BrokerSettings({"num.io.threads": "9"})
    settings.update({"num.io.threads": "10"}, {"num.io.threads": "11"})
    shown = described(settings)["num.io.threads"]
    assert (shown.value, shown.source) == ("11", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [synonym.value for synonym in shown.synonyms] == ["11", "10", "9", "8"]
    assert KAFKA.rows["num.io.threads"].update is UpdateMode.CLUSTER_WIDE
