from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import InvariantBroken
from penstock.config.layers import BrokerSettings
from penstock.metadata.broker_control import Registration
from penstock.metadata.controller import Controller
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, Partition, ResourceType, changed
from penstock.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

ID = bytes(range(16))
OTHER = bytes(range(1, 17))


def applied(*records: MetadataRecord) -> tuple[MetadataImage, MetadataDelta]:
    image, delta = MetadataImage(), MetadataDelta()
    image.apply(records, delta)
    return image, delta


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image, delta = applied(
        TopicRecord(name="a.b", topic_id=ID),
        PartitionRecord(partition_id=0, topic_id=ID, replicas=[1], isr=[1], leader=1),
    )
    topic = image.topics["a.b"]
    assert image.topics_by_id[ID] is topic
    assert image.partition_count == 1
    assert image.partition(ID, 0) is topic.partitions[0]
    assert image.partition(ID, 1) is None
    assert image.partition(OTHER, 0) is None
    assert image.collision("a_b") == "a.b"
    assert image.collision("a.b") is None
    assert delta.created_topics == {ID: topic}
    assert delta.changed_partitions == {(ID, 0)}


def test_removal_takes_everything_along() -> None:
    records = [
        TopicRecord(name="a", topic_id=ID),
        PartitionRecord(partition_id=0, topic_id=ID),
        ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"),
    ]
    image, _ = applied(*records)
    assert image.topic_config("a") == {"retention.ms": "1"}
    delta = MetadataDelta()
    image.apply([RemoveTopicRecord(topic_id=ID)], delta)
    assert image == MetadataImage()
    assert list(delta.deleted_topics) == [ID]
    assert delta.deleted_topics[ID].name == "a"
    _, both = applied(*records, RemoveTopicRecord(topic_id=ID))
    assert not both.created_topics
    assert not both.deleted_topics
    assert not both.changed_partitions


def test_naming_a_leader_starts_an_epoch_and_every_change_a_partition_epoch() -> None:
    partition = Partition((1, 2), (1, 2), 1, 4, 9)
    shrunk = changed(partition, PartitionChangeRecord(isr=[1]))
    assert (shrunk.isr, shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (
        (1,),
        1,
        4,
        10,
    )
    again = changed(partition, PartitionChangeRecord(leader=1))
    assert (again.leader, again.leader_epoch, again.partition_epoch) == (1, 5, 10)


@pytest.mark.parametrize(
    "records",
    [
        [PartitionRecord(partition_id=0, topic_id=ID)],
        [TopicRecord(name="a", topic_id=ID), PartitionRecord(partition_id=1, topic_id=ID)],
        [TopicRecord(name="a", topic_id=ID), PartitionChangeRecord(partition_id=0, topic_id=ID)],
        [TopicRecord(name="a", topic_id=ID), TopicRecord(name="a", topic_id=OTHER)],
        [RemoveTopicRecord(topic_id=ID)],
        [UnregisterBrokerRecord(broker_id=1)],
        [ProducerIdsRecord(next_producer_id=9), ProducerIdsRecord(next_producer_id=8)],
    ],
)
def test_records_that_contradict_the_image_stop_it(records: list[MetadataRecord]) -> None:
    with pytest.raises(InvariantBroken):
        applied(*records)


class SeededRng:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, n: int) -> int:
        self.count += 1
        return self.count % n


names = st.sampled_from(["a", "b", "c.d", "c_d", "e"])
commands = st.lists(
    st.one_of(
        st.tuples(st.just("create"), names, st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("delete"), names),
        st.tuples(st.just("grow"), names, st.integers(1, 6)),
        st.tuples(st.just("set"), names, st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("fence"), st.integers(1, 3)),
        st.tuples(st.just("unfence"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
        st.tuples(st.just("ids")),
    ),
    max_size=30,
)


def decide(controller: Controller, command: tuple, epoch: int) -> list[MetadataRecord]:
    match command:
        case ("create", name, partitions, factor):
            config = CreatableTopicConfig(name="retention.ms", value="7")
            topic = CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=factor, configs=[config]
            )
            return controller.create_topics(CreateTopicsRequest(topics=[topic]))[0]
        case ("delete", name):
            return controller.delete_topics(DeleteTopicsRequest(topic_names=[name]))[0]
        case ("grow", name, count):
            topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
            return controller.create_partitions(CreatePartitionsRequest(topics=[topic]))[0]
        case ("set", name, operation, value):
            config = AlterableConfig(
                name="retention.ms", config_operation=operation, value=str(value)
            )
            resource = AlterConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configs=[config]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            return controller.incremental_alter_configs(request)[0]
        case ("fence", broker):
            return controller.fence_broker(broker)[0]
        case ("unfence", broker):
            return controller.unfence_broker(broker)[0]
        case ("restart", broker):
            new = Registration(broker, bytes(16), [], f"rack{broker % 2}")
            return controller.register_broker(new, epoch, fenced=True)[0]
        case ("ids",):
            return controller.allocate_producer_ids(1, 0)[0]
    raise AssertionError(command)


@settings(max_examples=150)
@given(commands)
def test_replaying_the_log_gives_the_same_image_and_invariants_hold(commands: list[tuple]) -> None:
    controller = Controller(MetadataImage(), BrokerSettings({}), 1, SeededRng())
    log: list[bytes] = []
    for command in [("restart", 1), ("restart", 2), ("restart", 3), ("unfence", 2), *commands]:
        records = decide(controller, command, len(log))
        log += [encode_record(record) for record in records]
        before = leader_epochs(controller.image)
        controller.replay(records)
        assert_sound(controller.image, before)
    replayed = MetadataImage()
    replayed.apply(map(decode_record, log), MetadataDelta())
    assert replayed == controller.image


def leader_epochs(image: MetadataImage) -> dict[tuple[bytes, int], Partition]:
    return {
        (topic.id, index): partition
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
    }


def assert_sound(image: MetadataImage, before: dict[tuple[bytes, int], Partition]) -> None:
    assert image.partition_count == sum(len(t.partitions) for t in image.topics.values())
    assert set(image.topics) == {t.name for t in image.topics_by_id.values()}
    for key, partition in leader_epochs(image).items():
        assert partition.isr
        assert set(partition.isr) <= set(partition.replicas)
        if partition.leader >= 0:
            assert partition.leader in partition.isr
            assert not image.brokers[partition.leader].fenced
        old = before.get(key)
        if old is not None:
            assert partition.leader_epoch >= old.leader_epoch
            assert partition.leader == old.leader or partition.leader_epoch > old.leader_epoch
            assert partition == old or partition.partition_epoch > old.partition_epoch
