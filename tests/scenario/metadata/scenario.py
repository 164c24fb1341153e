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
from penstock.base.steps import at_once
from penstock.config.layers import BrokerSettings
from penstock.metadata.controller import Controller
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.metadata.image import MetadataImage, Partition
from penstock.metadata.records import (
    METADATA_VERSION,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
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
from penstock.metadata.token_control import TokenRules
from penstock.wire.messages import alter_configs as alter
from penstock.wire.messages import alter_partition as isr
from penstock.wire.messages import alter_partition_reassignments as reassign
from penstock.wire.messages import broker_registration as registration
from penstock.wire.messages import create_partitions as partitions
from penstock.wire.messages import create_topics as topics
from penstock.wire.messages import elect_leaders as elect
from penstock.wire.messages import incremental_alter_configs as incremental
from penstock.wire.messages import update_features as features
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest

NODE = 1
CLUSTER = "cluster"
RESOURCES = {"topic": 2, "broker": 4, "logger": 8, "client-metrics": 16, "group": 32}
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
LEADER_NOT_CHANGED = -2
UPGRADE_TYPES = {"upgrade": 1, "safe": 2, "unsafe": 3}
ELECTIONS = {"preferred": 0, "unclean": 1}


class CountingRng:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> Uuid:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, n: int) -> int:
        return 0


def number_id(number: int) -> Uuid:
    return number.to_bytes(16, "big")


def topic_id(name: str) -> Uuid:
    return number_id(int(name.removeprefix("t")))


def id_text(uuid: Uuid) -> str:
    return f"t{int.from_bytes(uuid, 'big')}"


class Scenario:
    """A controller under commands; every record goes through its encoding on the way."""

    token_rules = TokenRules(b"key", 10_000, 4_000, 1_000)

    def __init__(self) -> None:
        self.settings = BrokerSettings({"num.partitions": "2", "log.retention.hours": "1"})
        self.image = MetadataImage()
        self.log: list[bytes] = []
        self.now_ms = 0
        self.voters = {NODE}
        self.rng = CountingRng()
        self.take_over()

    def take_over(self) -> None:
        """A new controller, on the same image."""
        self.controller = Controller(
            self.image,
            self.settings,
            NODE,
            self.rng,
            cluster_id=CLUSTER,
            now_ms=self.now_ms,
            voters=lambda: self.voters,
            tokens=lambda: self.token_rules,
        )

    def run(self, line: str) -> Iterator[str]:
        verb, *words = shlex.split(line)
        method: Callable[..., Any] = getattr(self, "do_" + verb.replace("-", "_"))
        try:
            records, answers = method(*words)
        except ApiError as e:
            yield f"= {e.code.name}: {e.message}"
            return
        values = [encode_record(record, self.image.metadata_version) for record in records]
        self.log += values
        for value in values:
            record = decode_record(value)
            at_once(self.controller.replay([record]))
            yield f"+ {self.text(record)}"
        yield from (f"= {answer}" for answer in answers)

    def replayed(self) -> MetadataImage:
        image = MetadataImage()
        image.apply(map(decode_record, self.log), MetadataDelta())
        return image

    # -- time and brokers ----------------------------------------------------------------------

    def do_time(self, now_ms: str) -> Any:
        """Milliseconds since the beginning; the controller is not called."""
        self.now_ms = int(now_ms)
        return [], []

    def do_tick(self) -> Any:
        records, ended = self.controller.tick(self.now_ms, self.now_ms)
        said = [] if ended is None else [f"broker {ended.broker_id} silent for {ended.silent_ms}"]
        return records, said

    def do_held_up(self, ms: str) -> Any:
        """For so long, up to now, the controller could not hear anybody."""
        self.controller.held_up(int(ms), self.now_ms)
        return [], []

    def do_deadline(self) -> Any:
        return [], [self.controller.next_deadline_ms(self.now_ms)]

    def do_fail_over(self) -> Any:
        self.take_over()
        return [], []

    def do_set_static(self, name: str, value: str) -> Any:
        """A setting of the controller's own node."""
        self.settings.static[name] = value
        self.settings.update({}, {})
        return [], []

    def do_register(self, broker: str, *options: str) -> Any:
        """ID [rack=R] [run=N] [dir=N] [levels=LOW-HIGH] [cluster=C] [intact]"""
        named = pairs(options)
        low, _, high = named.get("levels", "29-30").partition("-")
        levels = SUPPORTED_FEATURES | {METADATA_VERSION: (low, high)} if low else {}
        request = registration.BrokerRegistrationRequest(
            broker_id=int(broker),
            cluster_id=named.get("cluster", CLUSTER),
            incarnation_id=number_id(int(named.get("run", len(self.log) + 1))),
            listeners=[registration.Listener(name="PLAINTEXT", host="h", port=9000 + int(broker))],
            features=[
                registration.Feature(
                    name=name,
                    min_supported_version=int(lowest),
                    max_supported_version=int(highest),
                )
                for name, (lowest, highest) in levels.items()
            ],
            rack=named.get("rack"),
            log_dirs=[number_id(int(d)) for d in named.get("dir", f"1{broker}").split(",") if d],
        )
        known = self.image.brokers.get(int(broker))
        if "intact" in options and known is not None:
            request.previous_broker_epoch = known.epoch
        epoch = len(self.log)
        records, response = self.controller.register_broker(request, epoch, self.now_ms)
        return records, [f"epoch {response.broker_epoch}"]

    def do_heartbeat(self, broker: str, *options: str) -> Any:
        """ID [offset=N] [epoch=N] [fence] [shutdown] [cordon=DIR,...]: all is applied by default"""
        named = pairs(options)
        known = self.image.brokers.get(int(broker))
        cordoned = named.get("cordon")
        request = BrokerHeartbeatRequest(
            broker_id=int(broker),
            broker_epoch=int(named.get("epoch", known.epoch if known else 0)),
            current_metadata_offset=int(named.get("offset", len(self.log) - 1)),
            want_fence="fence" in options,
            want_shut_down="shutdown" in options,
            cordoned_log_dirs=None
            if cordoned is None
            else [number_id(int(d)) for d in cordoned.split(",") if d],
        )
        offset = len(self.log)
        records, response = self.controller.broker_heartbeat(request, self.now_ms, offset)
        words = [
            "caught up" if response.is_caught_up else "behind",
            "fenced" if response.is_fenced else "unfenced",
        ]
        return records, [", ".join([*words, *["may go"] * response.should_shut_down])]

    def do_unreachable(self, broker: str, *options: str) -> Any:
        """ID [epoch=N] [since=MS] [intact]"""
        named = pairs(options)
        known = self.image.brokers.get(int(broker))
        records, fenced = self.controller.broker_unreachable(
            int(broker),
            int(named.get("epoch", known.epoch if known else 0)),
            int(named.get("since", self.now_ms)),
            intact="intact" in options,
        )
        return records, ["fenced" if fenced else "left alone"]

    def do_unregister(self, broker: str) -> Any:
        request = UnregisterBrokerRequest(broker_id=int(broker))
        return self.controller.unregister_broker(request)[0], []

    # -- features and partitions ---------------------------------------------------------------

    def do_feature(self, name: str, level: str, kind: str = "upgrade", *options: str) -> Any:
        """NAME LEVEL [upgrade|safe|unsafe] [validate]"""
        update = features.FeatureUpdateKey(
            feature=name, max_version_level=int(level), upgrade_type=UPGRADE_TYPES[kind]
        )
        request = features.UpdateFeaturesRequest(
            feature_updates=[update], validate_only="validate" in options
        )
        records, response = self.controller.update_features(request)
        return records, [outcome(name, response, "ok")]

    def do_voters(self, *ids: str) -> Any:
        self.voters = {int(id_) for id_ in ids}
        return [], []

    def do_alter_partition(self, name: str, leader: str, new_isr: str, *options: str) -> Any:
        """TOPIC-INDEX LEADER ISR|none [leader-epoch=N] [partition-epoch=N] [broker-epoch=N]
        [epochs=N,N] [state=N]: epochs are the right ones by default
        """
        named = pairs(options)
        id_, index, partition = self.found(name)
        broker_ids = [] if new_isr == "none" else [int(b) for b in new_isr.split(",")]
        epochs = [int(e) for e in named["epochs"].split(",")] if "epochs" in named else []
        data = isr.RequestPartitionData(
            partition_index=index,
            leader_epoch=int(named.get("leader-epoch", partition.leader_epoch)),
            partition_epoch=int(named.get("partition-epoch", partition.partition_epoch)),
            leader_recovery_state=int(named.get("state", 0)),
            new_isr_with_epochs=[
                isr.BrokerState(broker_id=b, broker_epoch=epoch)
                for b, epoch in zip(broker_ids, epochs or self.epochs(broker_ids), strict=True)
            ],
        )
        request = isr.AlterPartitionRequest(
            broker_id=int(leader),
            broker_epoch=int(named.get("broker-epoch", self.epochs([int(leader)])[0])),
            topics=[isr.RequestTopicData(topic_id=id_, partitions=[data])],
        )
        records, response = self.controller.alter_partition(request)
        got = response.topics[0].partitions[0]
        if got.error_code:
            return records, [ErrorCode(got.error_code).name]
        return records, [
            f"leader {got.leader_id} isr {got.isr} leader-epoch {got.leader_epoch} "
            f"partition-epoch {got.partition_epoch}"
        ]

    def do_elect(self, kind: str, *names: str) -> Any:
        """preferred|unclean|NUMBER [TOPIC-INDEX ...]: all without names"""
        wanted = [
            elect.TopicPartitions(topic=topic, partitions=[int(index)])
            for topic, _, index in (name.rpartition("-") for name in names)
        ]
        request = elect.ElectLeadersRequest(
            election_type=ELECTIONS.get(kind, 9), topic_partitions=wanted or None
        )
        records, response = self.controller.elect_leaders(request)
        return records, [
            outcome(f"{result.topic}-{p.partition_id}", p, "elected")
            for result in response.replica_election_results
            for p in result.partition_result
        ]

    def do_reassign(self, name: str, replicas: str, *options: str) -> Any:
        """TOPIC-INDEX REPLICAS|cancel [same-factor]"""
        topic, _, index = name.rpartition("-")
        wanted = reassign.ReassignablePartition(
            partition_index=int(index),
            replicas=None if replicas == "cancel" else [int(b) for b in replicas.split(",") if b],
        )
        request = reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name=topic, partitions=[wanted])],
            allow_replication_factor_change="same-factor" not in options,
        )
        records, response = self.controller.alter_partition_reassignments(request)
        return records, [outcome(name, response.responses[0].partitions[0], "ok")]

    def do_reassigning(self, *names: str) -> Any:
        """[TOPIC-INDEX ...]: all without names"""
        wanted = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=[int(index)])
            for topic, _, index in (name.rpartition("-") for name in names)
        ]
        request = ListPartitionReassignmentsRequest(topics=wanted or None)
        records, response = self.controller.list_partition_reassignments(request)
        return records, [
            f"{topic.name}-{p.partition_index} replicas={p.replicas} "
            f"adding={p.adding_replicas} removing={p.removing_replicas}"
            for topic in response.topics
            for p in topic.partitions
        ]

    def do_show(self, name: str) -> Any:
        _, _, p = self.found(name)
        more = f" elr={list(p.elr)}" if p.elr else ""
        more += f" last-known={list(p.last_known_elr)}" if p.last_known_elr else ""
        return [], [f"replicas={list(p.replicas)} isr={list(p.isr)} leader={p.leader}{more}"]

    def found(self, name: str) -> tuple[Uuid, int, Partition]:
        topic, _, index = name.rpartition("-")
        if topic not in self.image.topics:
            return number_id(99), int(index), Partition((), (), -1, 0, 0)
        id_ = self.image.topics[topic].id
        partition = self.image.partition(id_, int(index)) or Partition((), (), -1, 0, 0)
        return id_, int(index), partition

    def epochs(self, broker_ids: list[int]) -> list[int]:
        return [self.image.brokers[b].epoch if b in self.image.brokers else -1 for b in broker_ids]

    # -- topics and settings -------------------------------------------------------------------

    def do_bootstrap(self) -> Any:
        return self.controller.bootstrap()[0], []

    def do_producer_ids(self, broker: str) -> Any:
        epoch = self.epochs([int(broker)])[0]
        request = AllocateProducerIdsRequest(broker_id=int(broker), broker_epoch=epoch)
        records, block = self.controller.allocate_producer_ids(request)
        first, size = block.producer_id_start, block.producer_id_len
        return records, [f"ids {first} to {first + size - 1}"]

    def do_create(self, *words: str) -> Any:
        """NAME[:PARTITIONS[:FACTOR]] [assign=1,2/2,3] [setting=value ...] [and NAME ...]"""
        only = words[0] == "--validate"
        request = topics.CreateTopicsRequest(
            topics=[creatable(group) for group in groups(words[only:])], validate_only=only
        )
        records, response = at_once(self.controller.create_topics(request))
        return records, [
            outcome(t.name, t, f"{t.num_partitions} x {t.replication_factor}")
            for t in response.topics
        ]

    def do_delete(self, *names: str) -> Any:
        """NAME or id:tN"""
        states = [
            DeleteTopicState(topic_id=topic_id(name.removeprefix("id:")))
            if name.startswith("id:")
            else DeleteTopicState(name=name)
            for name in names
        ]
        request = DeleteTopicsRequest(topics=states)
        records, response = at_once(self.controller.delete_topics(request))
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
        records, response = at_once(self.controller.create_partitions(request))
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
        records, response = at_once(self.controller.alter_configs(request))
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
        records, response = at_once(self.controller.incremental_alter_configs(request))
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
                owner = next(
                    kind for kind, code in RESOURCES.items() if code == record.resource_type
                )
                shown = "(deleted)" if record.value is None else f"= {record.value!r}"
                return f"config {owner} {record.resource_name!r} {record.name} {shown}"
            case RegisterBrokerRecord():
                state = "fenced" if record.fenced else "unfenced"
                return f"broker {record.broker_id} epoch={record.broker_epoch} {state}"
            case BrokerRegistrationChangeRecord():
                fenced = {-1: " unfenced", 0: "", 1: " fenced"}[record.fenced]
                stops = " stops" if record.in_controlled_shutdown else ""
                cordoned = record.cordoned_log_dirs
                folders = "" if cordoned is None else f" cordoned={len(cordoned)}"
                return f"broker-change {record.broker_id}{fenced}{stops}{folders}"
            case UnregisterBrokerRecord():
                return f"unregister-broker {record.broker_id}"
            case FeatureLevelRecord():
                return f"feature {record.name} {record.feature_level}"
            case ClearElrRecord():
                return f"clear-elr {record.topic_name!r}"
            case ProducerIdsRecord():
                return f"producer-ids next={record.next_producer_id}"
        raise AssertionError(record)

    def change_text(self, record: PartitionChangeRecord) -> str:
        """With the state after the change, since epochs follow from it."""
        partition = self.image.partition(record.topic_id, record.partition_id)
        assert partition is not None
        changes = "" if record.isr is None else f" isr={record.isr}"
        elr, known = record.eligible_leader_replicas, record.last_known_elr
        changes += "" if elr is None else f" elr={elr}"
        changes += "" if known is None else f" last-known={known}"
        changes += "" if record.leader == LEADER_NOT_CHANGED else f" leader={record.leader}"
        changes += {-1: "", 0: " recovered", 1: " recovering"}[record.leader_recovery_state]
        changes += "" if record.replicas is None else f" replicas={record.replicas}"
        changes += "" if record.adding_replicas is None else f" adding={record.adding_replicas}"
        changes += (
            "" if record.removing_replicas is None else f" removing={record.removing_replicas}"
        )
        moved = record.directories is not None and record.replicas is None
        changes += " folder" if moved else ""
        return (
            f"change {id_text(record.topic_id)}-{record.partition_id}{changes} "
            f"-> leader-epoch={partition.leader_epoch} partition-epoch={partition.partition_epoch}"
        )


def pairs(options: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, equals, value in (o.partition("=") for o in options) if equals}


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
