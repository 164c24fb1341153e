"""The scenario language: one command per line in, records and answers as lines out.

A scenario file holds commands (`> ...`), each followed by what it must print: the records that
the controller appends (`+ ...`) and the answer (`= ...`). Topic ids are `t1`, `t2`, ... in order
of creation. Run with `PENSTOCK_REWRITE=1` to write the present output into the files, then read
the difference.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.config.layers import BrokerSettings
from penstock.metadata.broker_control import Registration
from penstock.metadata.controller import Controller
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from penstock.wire.messages import alter_configs as alter
from penstock.wire.messages import create_partitions as partitions
from penstock.wire.messages import create_topics as topics
from penstock.wire.messages import incremental_alter_configs as incremental
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

NODE = 1
RESOURCES = {"topic": 2, "broker": 4, "logger": 8, "group": 32}
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
LEADER_NOT_CHANGED = -2


class CountingRng:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> Uuid:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, n: int) -> int:
        return 0


def topic_id(name: str) -> Uuid:
    return int(name.removeprefix("t")).to_bytes(16, "big")


def id_text(uuid: Uuid) -> str:
    return f"t{int.from_bytes(uuid, 'big')}"


class Scenario:
    """A controller under commands; every record goes through its encoding on the way."""

    def __init__(self) -> None:
        self.settings = BrokerSettings({"num.partitions": "2", "log.retention.hours": "1"})
        self.image = MetadataImage()
        self.controller = Controller(self.image, self.settings, NODE, CountingRng())
        self.log: list[bytes] = []

    def run(self, line: str) -> Iterator[str]:
        verb, *words = shlex.split(line)
        method: Callable[..., Any] = getattr(self, "do_" + verb.replace("-", "_"))
        try:
            records, answers = method(*words)
        except ApiError as e:
            yield f"= {e.code.name}: {e.message}"
            return
        values = [encode_record(record) for record in records]
        self.log += values
        for value in values:
            record = decode_record(value)
            self.controller.replay([record])
            yield f"+ {self.text(record)}"
        yield from (f"= {answer}" for answer in answers)

    def replayed(self) -> MetadataImage:
        image = MetadataImage()
        image.apply(map(decode_record, self.log), MetadataDelta())
        return image

    def do_register(self, broker: str, *options: str) -> Any:
        rack = next((o.removeprefix("rack=") for o in options if o.startswith("rack=")), None)
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="h", port=9000 + int(broker))
        new = Registration(int(broker), bytes(16), [endpoint], rack)
        records, epoch = self.controller.register_broker(
            new, len(self.log), fenced="fenced" in options
        )
        return records, [f"epoch {epoch}"]

    def do_unregister(self, broker: str) -> Any:
        return self.controller.unregister_broker(int(broker))[0], []

    def do_fence(self, broker: str) -> Any:
        return self.controller.fence_broker(int(broker))[0], []

    def do_unfence(self, broker: str) -> Any:
        return self.controller.unfence_broker(int(broker))[0], []

    def do_shutdown(self, broker: str) -> Any:
        return self.controller.begin_broker_shutdown(int(broker))[0], []

    def do_bootstrap(self) -> Any:
        return self.controller.bootstrap()[0], []

    def do_producer_ids(self, broker: str) -> Any:
        records, block = self.controller.allocate_producer_ids(int(broker), 7)
        return records, [f"ids {block.first} to {block.first + block.size - 1}"]

    def do_create(self, *words: str) -> Any:
        """NAME[:PARTITIONS[:FACTOR]] [assign=1,2/2,3] [setting=value ...] [and NAME ...]"""
        only = words[0] == "--validate"
        request = topics.CreateTopicsRequest(
            topics=[creatable(group) for group in groups(words[only:])], validate_only=only
        )
        records, response = self.controller.create_topics(request)
        return records, [
            outcome(t.name, t, f"{t.num_partitions} x {t.replication_factor}")
            for t in response.topics
        ]

    def do_auto_create(self, *names: str) -> Any:
        records, response = self.controller.auto_create_topics(names)
        return records, [outcome(t.name, t, "created") for t in response.topics]

    def do_delete(self, *names: str) -> Any:
        """NAME or id:tN"""
        states = [
            DeleteTopicState(topic_id=topic_id(name.removeprefix("id:")))
            if name.startswith("id:")
            else DeleteTopicState(name=name)
            for name in names
        ]
        records, response = self.controller.delete_topics(DeleteTopicsRequest(topics=states))
        return records, [outcome(t.name, t, id_text(t.topic_id)) for t in response.responses]

    def do_add_partitions(self, *words: str) -> Any:
        """NAME COUNT [assign=1,2/2,3] [and NAME ...]"""
        wanted = [
            partitions.CreatePartitionsTopic(
                name=name,
                count=int(count),
                assignments=[
                    partitions.CreatePartitionsAssignment(broker_ids=replicas)
                    for replicas in assignment(options)
                ]
                or None,
            )
            for name, count, *options in groups(words)
        ]
        request = partitions.CreatePartitionsRequest(topics=wanted)
        records, response = self.controller.create_partitions(request)
        return records, [outcome(t.name, t, "ok") for t in response.results]

    def do_alter(self, kind: str, name: str, *values: str) -> Any:
        """KIND NAME [setting=value | setting] ...: all settings of the resource"""
        configs = [
            alter.AlterableConfig(name=key, value=value if equals else None)
            for key, equals, value in (word.partition("=") for word in values)
        ]
        resource = alter.AlterConfigsResource(
            resource_type=int(RESOURCES.get(kind, kind)), resource_name=name, configs=configs
        )
        request = alter.AlterConfigsRequest(resources=[resource])
        records, response = self.controller.alter_configs(request)
        return records, [outcome(kind, r, "ok") for r in response.responses]

    def do_change(self, kind: str, name: str, *changes: str) -> Any:
        """KIND NAME OPERATION:SETTING[=VALUE] ...: single settings"""
        configs = []
        for operation, _, rest in (word.partition(":") for word in changes):
            key, equals, value = rest.partition("=")
            configs.append(
                incremental.AlterableConfig(
                    name=key,
                    config_operation=int(OPERATIONS.get(operation, operation)),
                    value=value if equals else None,
                )
            )
        resource = incremental.AlterConfigsResource(
            resource_type=int(RESOURCES.get(kind, kind)), resource_name=name, configs=configs
        )
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        records, response = self.controller.incremental_alter_configs(request)
        return records, [outcome(kind, r, "ok") for r in response.responses]

    def text(self, record: MetadataRecord) -> str:
        """A record as one readable line."""
        match record:
            case TopicRecord():
                return f"topic {record.name} {id_text(record.topic_id)}"
            case RemoveTopicRecord():
                return f"remove-topic {id_text(record.topic_id)}"
            case PartitionRecord():
                return (
                    f"partition {id_text(record.topic_id)}-{record.partition_id} "
                    f"replicas={record.replicas} isr={record.isr} leader={record.leader}"
                )
            case PartitionChangeRecord():
                return self.change_text(record)
            case ConfigRecord():
                owner = {2: "topic", 4: "broker"}[record.resource_type]
                shown = "(deleted)" if record.value is None else f"= {record.value!r}"
                return f"config {owner} {record.resource_name!r} {record.name} {shown}"
            case RegisterBrokerRecord():
                state = "fenced" if record.fenced else "unfenced"
                return f"broker {record.broker_id} epoch={record.broker_epoch} {state}"
            case BrokerRegistrationChangeRecord():
                fenced = {-1: " unfenced", 0: "", 1: " fenced"}[record.fenced]
                stops = " stops" if record.in_controlled_shutdown else ""
                return f"broker-change {record.broker_id}{fenced}{stops}"
            case UnregisterBrokerRecord():
                return f"unregister-broker {record.broker_id}"
            case FeatureLevelRecord():
                return f"feature {record.name} {record.feature_level}"
            case ProducerIdsRecord():
                return f"producer-ids next={record.next_producer_id}"
        raise AssertionError(record)

    def change_text(self, record: PartitionChangeRecord) -> str:
        """With the state after the change, since epochs follow from it."""
        partition = self.image.partition(record.topic_id, record.partition_id)
        assert partition is not None
        changes = "" if record.isr is None else f" isr={record.isr}"
        changes += "" if record.leader == LEADER_NOT_CHANGED else f" leader={record.leader}"
        changes += " recovering" if record.leader_recovery_state == 1 else ""
        return (
            f"change {id_text(record.topic_id)}-{record.partition_id}{changes} "
            f"-> leader-epoch={partition.leader_epoch} partition-epoch={partition.partition_epoch}"
        )


def groups(words: tuple[str, ...]) -> list[list[str]]:
    result: list[list[str]] = [[]]
    for word in words:
        if word == "and":
            result.append([])
        else:
            result[-1].append(word)
    return result


def assignment(options: list[str]) -> list[list[int]]:
    text = next((o.removeprefix("assign=") for o in options if o.startswith("assign=")), None)
    if text is None:
        return []
    return [[int(b) for b in part.split(",") if b] for part in text.split("/")]


def creatable(words: list[str]) -> topics.CreatableTopic:
    name, count, factor = [*words[0].split(":"), "-1", "-1"][:3]
    pairs = [word.partition("=") for word in words[1:] if not word.startswith("assign=")]
    return topics.CreatableTopic(
        name=name,
        num_partitions=int(count),
        replication_factor=int(factor),
        assignments=[
            topics.CreatableReplicaAssignment(partition_index=i, broker_ids=replicas)
            for i, replicas in enumerate(assignment(words[1:]))
        ],
        configs=[
            topics.CreatableTopicConfig(name=key, value=value if equals else None)
            for key, equals, value in pairs
        ],
    )


def outcome(name: str | None, result: Any, fine: str) -> str:
    if result.error_code == ErrorCode.NONE:
        return f"{name}: {fine}"
    return f"{name}: {ErrorCode(result.error_code).name}: {result.error_message}"
