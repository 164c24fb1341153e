"""librdkafka's admin client through confluent-kafka: topics, settings, records, their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from support.helpers import TopicMaker, admin, eventually, produce_all, producer, read
from support.process import BrokerProcess

Names = Callable[[], str]


def outcome(futures: dict[Any, Any]) -> Any:
    """The result of a call about one thing."""
    [future] = futures.values()
    return future.result(30)


def error_of(futures: dict[Any, Any]) -> KafkaError:
    """The error of a call about one thing."""
    with pytest.raises(KafkaException) as caught:
        outcome(futures)
    return caught.value.args[0]


def topic_config(node: BrokerProcess, name: str) -> dict[str, ConfigEntry]:
    found = outcome(admin(node).describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
    assert isinstance(found, dict)
    return found


def change(name: str, setting: str, value: str | None, kind: AlterConfigOpType) -> ConfigResource:
    entry = ConfigEntry(setting, value, incremental_operation=kind)
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])


def test_create_describe_delete(node: BrokerProcess, topic_name: Names) -> None:
    name, client = topic_name(), admin(node)
    outcome(client.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "1000"})]))

    def described() -> Any:
        found = outcome(client.describe_topics(TopicCollection([name])))
        return found if len(found.partitions) == 3 else None

    found = eventually(described)
    assert found.name == name
    assert not found.is_internal
    assert str(found.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert [p.id for p in found.partitions] == [0, 1, 2]
    assert all(len(p.replicas) == len(p.isr) == 1 and p.leader for p in found.partitions)
    assert name in client.list_topics(timeout=10).topics
    outcome(client.delete_topics([name]))
    eventually(lambda: name not in client.list_topics(timeout=10).topics)


def test_a_topic_made_again_is_another_topic(node: BrokerProcess, topic: TopicMaker) -> None:
    client, name = admin(node), topic()
    produce_all(producer(node), name, [{"value": b"old"}])
    first = outcome(client.describe_topics(TopicCollection([name]))).topic_id
    outcome(client.delete_topics([name]))
    eventually(lambda: name not in client.list_topics(timeout=10).topics)
    outcome(client.create_topics([NewTopic(name, 1, 1)]))
    again = eventually(lambda: outcome(client.describe_topics(TopicCollection([name]))))
    assert str(again.topic_id) != str(first)
    produce_all(producer(node), name, [{"value": b"new"}])
    assert [m.value() for m in read(node, name, 1)] == [b"new"]


def test_an_existing_topic_is_not_made_again(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    error = error_of(admin(node).create_topics([NewTopic(name, 1, 1)]))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert name in error.str()


@pytest.mark.parametrize("name", [".", "..", "with space", "x" * 250, "slash/ed", "ключ"])
def test_bad_topic_names(node: BrokerProcess, name: str) -> None:
    error = error_of(admin(node).create_topics([NewTopic(name, 1, 1)]))
    assert error.code() == KafkaError.TOPIC_EXCEPTION


def test_names_that_collide_in_metrics(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    outcome(admin(node).create_topics([NewTopic(name + "_x.y", 1, 1)]))
    error = error_of(admin(node).create_topics([NewTopic(name + ".x_y", 1, 1)]))
    assert error.code() == KafkaError.TOPIC_EXCEPTION


def test_more_replicas_than_nodes(node: BrokerProcess, topic_name: Names) -> None:
    error = error_of(admin(node).create_topics([NewTopic(topic_name(), 1, 3)]))
    assert error.code() == KafkaError.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "shred"),
        ("max.message.bytes", "-1"),
        ("compression.type", "rar"),
        ("segment.bytes", "1"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("message.timestamp.type", "Never"),
        ("min.insync.replicas", "0"),
    ],
)
def test_bad_settings_at_creation(
    node: BrokerProcess, topic_name: Names, setting: str, value: str
) -> None:
    name = topic_name()
    error = error_of(admin(node).create_topics([NewTopic(name, 1, 1, config={setting: value})]))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert setting in error.str()
    assert name not in admin(node).list_topics(timeout=10).topics


def test_validate_only_makes_nothing(node: BrokerProcess, topic_name: Names) -> None:
    name, client = topic_name(), admin(node)
    outcome(client.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in client.list_topics(timeout=10).topics


def test_add_partitions(node: BrokerProcess, topic: TopicMaker) -> None:
    name, client = topic(partitions=2), admin(node)
    outcome(client.create_partitions([NewPartitions(name, 5)]))
    eventually(lambda: len(client.list_topics(name, timeout=10).topics[name].partitions) == 5)
    produce_all(producer(node), name, [{"value": b"x", "partition": 4}])
    assert len(read(node, name, 1, partition=4)) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_never_fewer_partitions(node: BrokerProcess, topic: TopicMaker, count: int) -> None:
    name = topic(partitions=2)
    error = error_of(admin(node).create_partitions([NewPartitions(name, count)]))
    assert error.code() == KafkaError.INVALID_PARTITIONS


def test_unknown_topics(node: BrokerProcess, topic_name: Names) -> None:
    name, client = topic_name(), admin(node)
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert error_of(client.delete_topics([name])).code() == unknown
    assert error_of(client.create_partitions([NewPartitions(name, 3)])).code() == unknown
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert error_of(client.describe_configs([resource])).code() == unknown
    assert error_of(client.describe_topics(TopicCollection([name]))).code() == unknown
    altered = change(name, "retention.ms", "5", AlterConfigOpType.SET)
    assert error_of(client.incremental_alter_configs([altered])).code() == unknown


def test_settings_have_sources(node: BrokerProcess, topic: TopicMaker) -> None:
    found = topic_config(node, topic(config={"retention.ms": "123456"}))
    assert found["retention.ms"].value == "123456"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["retention.ms"].is_default
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["cleanup.policy"].value == "delete"
    synonyms = [(s.name, s.value) for s in found["retention.ms"].synonyms.values()]
    assert ("retention.ms", "123456") in synonyms


def test_incremental_changes(node: BrokerProcess, topic: TopicMaker) -> None:
    name, client = topic(), admin(node)
    kinds = AlterConfigOpType

    def apply(setting: str, value: str | None, kind: AlterConfigOpType) -> None:
        outcome(client.incremental_alter_configs([change(name, setting, value, kind)]))

    def settles(setting: str, value: str) -> None:
        eventually(lambda: topic_config(node, name)[setting].value == value)

    apply("retention.ms", "777", kinds.SET)
    settles("retention.ms", "777")
    apply("cleanup.policy", "compact", kinds.APPEND)
    settles("cleanup.policy", "delete,compact")
    apply("cleanup.policy", "delete", kinds.SUBTRACT)
    settles("cleanup.policy", "compact")
    apply("retention.ms", None, kinds.DELETE)
    settles("retention.ms", "604800000")


@pytest.mark.parametrize(
    ("setting", "value", "kind", "code"),
    [
        ("no.such.setting", "1", AlterConfigOpType.SET, KafkaError.INVALID_CONFIG),
        ("retention.ms", "soon", AlterConfigOpType.SET, KafkaError.INVALID_CONFIG),
        ("retention.ms", "1", AlterConfigOpType.APPEND, KafkaError.INVALID_CONFIG),
    ],
)
def test_bad_incremental_changes(
    node: BrokerProcess,
    topic: TopicMaker,
    setting: str,
    value: str,
    kind: AlterConfigOpType,
    code: int,
) -> None:
    name = topic()
    error = error_of(admin(node).incremental_alter_configs([change(name, setting, value, kind)]))
    assert error.code() == code
    assert setting in error.str()


def test_alter_configs_replaces_all(node: BrokerProcess, topic: TopicMaker) -> None:
    name, client = topic(config={"retention.ms": "5000", "segment.ms": "60000"}), admin(node)
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"segment.ms": "70000"})
    outcome(client.alter_configs([resource]))
    eventually(lambda: topic_config(node, name)["segment.ms"].value == "70000")
    assert topic_config(node, name)["retention.ms"].value == "604800000"


def test_broker_settings(node: BrokerProcess) -> None:
    client = admin(node)
    [broker] = client.list_topics(timeout=10).brokers
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    found = outcome(client.describe_configs([resource]))
    assert found["auto.create.topics.enable"].value == "false"
    assert found["auto.create.topics.enable"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["log.retention.hours"].value == "168"
    assert found["message.max.bytes"].value == "1048588"


def test_describe_cluster(node: BrokerProcess) -> None:
    found = admin(node).describe_cluster().result(30)
    assert len(found.cluster_id) == 22
    assert [(n.host, n.port) for n in found.nodes] == [("127.0.0.1", node.port)]
    assert found.controller.id == found.nodes[0].id


def test_delete_records(node: BrokerProcess, topic: TopicMaker) -> None:
    name, client = topic(), admin(node)
    produce_all(producer(node), name, [{"value": str(i)} for i in range(10)])
    deleted = outcome(client.delete_records([TopicPartition(name, 0, 4)]))
    assert deleted.low_watermark == 4
    partition = TopicPartition(name, 0)
    earliest = client.list_offsets({partition: OffsetSpec.earliest()})[partition].result(20)
    assert earliest.offset == 4
    assert [m.value() for m in read(node, name, 1, offset=4)] == [b"4"]
    everything = outcome(client.delete_records([TopicPartition(name, 0, -1)]))
    assert everything.low_watermark == 10
    beyond = error_of(client.delete_records([TopicPartition(name, 0, 11)]))
    assert beyond.code() == KafkaError.OFFSET_OUT_OF_RANGE
