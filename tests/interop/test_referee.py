"""Apache Kafka as the referee: the same requests to both brokers, the answers compared.

What differs on purpose stands in `DEVIATIONS`, with its reason; everything else must agree.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.wire.messages.alter_configs import AlterableConfig as FullConfig
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_configs import AlterConfigsResource as FullResource
from penstock.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest
from penstock.wire.messages.describe_producers import TopicRequest as ProducersTopic
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.messages.produce import ProduceRequest
from support.batches import Rec, batch
from support.calls import (
    RawTopic,
    fetch_request,
    find_topic,
    init_producer,
    produce,
    produce_request,
)
from support.helpers import make_topic
from support.process import BrokerProcess
from support.raw import RawClient
from support.referee import Script, compare

pytestmark = pytest.mark.java

NOWHERE = RawTopic("no-such-topic", b"\x05" * 16)
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

# (script, pattern of the difference, why it is right)
OUR_SETTING = r"/configs/penstock\.encryption\.key\.id: '<absent>'"
DEVIATIONS: list[tuple[str, str, str]] = [
    ("create_errors", r"^/unclean.*=TRUE/.*/value", "booleans are shown in lower case"),
    ("create_errors", r"^/retention.ms= 5 /", "numbers are kept without the spaces around them"),
    (
        "config_changes",
        r"^/bad operation/",
        "Kafka fails by accident; the client is told its error",
    ),
    (
        "config_changes",
        r"^/delete unknown/",
        "a setting that does not exist is told, also to who deletes it: it is a typo",
    ),
    ("create_errors", OUR_SETTING, "a setting of ours is shown, too"),
    ("config_listing", OUR_SETTING, "a setting of ours is shown, too"),
    ("offsets", r"^/trimmed -3/", "Kafka names a record that was deleted"),
    ("fetches", r"^/negative/", "Kafka fails by accident; no limit is below the first batch"),
]


def topic(run: Script, suffix: str, partitions: int = 1, **config: str) -> RawTopic:
    """A topic of this script on the run's broker."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    name = make_topic(run.broker, f"{run.name}-{suffix}", partitions, settings)
    with RawClient(run.broker.host, run.broker.port) as client:
        return find_topic(client, name)


def fill(run: Script, known: RawTopic, *records: bytes) -> None:
    with RawClient(run.broker.host, run.broker.port) as client:
        for data in records:
            assert produce(client, known, data).error_code == 0


def create_errors(run: Script) -> None:
    def make(label: str, *topics: CreatableTopic, version: int = 7, **fields: Any) -> None:
        for new in topics:
            new.name = new.name.replace("$", run.name)
        request = CreateTopicsRequest(topics=list(topics), timeout_ms=20_000, **fields)
        run.ask(label, request, version)

    def new(
        name: str = "$-x", partitions: int = 1, replicas: int = 1, **fields: Any
    ) -> CreatableTopic:
        return CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, **fields
        )

    def placed(*rows: tuple[int, list[int]], **fields: Any) -> CreatableTopic:
        rows_ = [CreatableReplicaAssignment(partition_index=p, broker_ids=b) for p, b in rows]
        return new(**({"partitions": -1, "replicas": -1} | fields), assignments=rows_)

    make("good", new("$-good", 2))
    make("defaults", new("$-defaults", -1, -1))
    make("exists", new("$-good"))
    for label, name in {
        "empty": "",
        "dot": ".",
        "dots": "..",
        "long": "x" * 250,
        "space": "a b",
        "slash": "a/b",
        "longest": "$" + "y" * 200,
    }.items():
        make(f"name {label}", new(name), validate_only=True)
    make("twice", new("$-twice"), new("$-twice"), new("$-fine"), validate_only=True)
    for count in (0, -1, -2):
        make(f"partitions {count}", new(partitions=count), validate_only=True)
        make(f"replicas {count}", new(replicas=count), validate_only=True)
    make("replicas 2", new(replicas=2), validate_only=True)
    here = run.node_id
    make("placed", placed((0, [here]), (1, [here])), validate_only=True)
    make("placed twice on a node", placed((0, [here, here])), validate_only=True)
    make("placed nowhere", placed((0, [999])), validate_only=True)
    make("placed on nothing", placed((0, [])), validate_only=True)
    make("placed with a gap", placed((1, [here])), validate_only=True)
    make("placed unevenly", placed((0, [here]), (1, [])), validate_only=True)
    make("placed and counted", placed((0, [here]), partitions=1), validate_only=True)
    make("placed and replicated", placed((0, [here]), replicas=1), validate_only=True)
    for setting, value in (
        ("no.such", "1"),
        ("retention.ms", "x"),
        ("retention.ms", None),
        ("retention.ms", ""),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "rar"),
        ("segment.bytes", "1"),
        ("segment.bytes", "99999999999"),
        ("max.message.bytes", "-1"),
        ("min.insync.replicas", "0"),
        ("message.timestamp.type", "x"),
        ("preallocate", "yes"),
        ("unclean.leader.election.enable", "TRUE"),
        ("min.cleanable.dirty.ratio", "2"),
        ("compression.gzip.level", "10"),
        ("retention.bytes", "-2"),
        ("retention.ms", "-1"),
        ("flush.ms", "-1"),
        ("segment.ms", "0"),
        ("", "1"),
        ("retention.ms ", "5"),
        ("retention.ms", " 5 "),
        ("max.compaction.lag.ms", "0"),
        ("file.delete.delay.ms", "-1"),
    ):
        config = [CreatableTopicConfig(name=setting, value=value)]
        make(f"{setting}={value}", new(configs=config), validate_only=True)
    both = [
        CreatableTopicConfig(name="min.compaction.lag.ms", value="10"),
        CreatableTopicConfig(name="max.compaction.lag.ms", value="5"),
    ]
    make("settings at odds", new(configs=both), validate_only=True)
    again = [CreatableTopicConfig(name="retention.ms", value=v) for v in ("1", "2")]
    make("a setting twice", new(configs=again), validate_only=True)
    for version in range(2, 8):
        make(f"version {version}", new("a b"), new("$-v"), version=version, validate_only=True)


def delete_errors(run: Script) -> None:
    known = topic(run, "x")

    def delete(label: str, *states: DeleteTopicState) -> None:
        run.ask(label, DeleteTopicsRequest(topics=list(states), timeout_ms=20_000), 6)

    delete("unknown", DeleteTopicState(name="no-such-topic"))
    delete("unknown id", DeleteTopicState(topic_id=NOWHERE.id))
    delete("neither", DeleteTopicState())
    delete("both", DeleteTopicState(name=known.name, topic_id=known.id))
    delete("twice", DeleteTopicState(name=known.name), DeleteTopicState(name=known.name))
    run.ask("old", DeleteTopicsRequest(topic_names=["no-such-topic"], timeout_ms=20_000), 5)
    run.ask("older", DeleteTopicsRequest(topic_names=["no-such-topic"], timeout_ms=20_000), 1)


def partition_errors(run: Script) -> None:
    known = topic(run, "x", 2)
    here = run.node_id

    def grow(label: str, count: int, name: str = known.name, *rows: list[int]) -> None:
        assignments = [CreatePartitionsAssignment(broker_ids=row) for row in rows] or None
        entry = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        run.ask(
            label, CreatePartitionsRequest(topics=[entry], timeout_ms=9000, validate_only=True), 3
        )

    for count in (-1, 0, 1, 2, 3):
        grow(f"to {count}", count)
    grow("unknown", 3, "no-such-topic")
    grow("bad name", 3, "a b")
    grow("placed", 4, known.name, [here], [here])
    grow("placed too few", 4, known.name, [here])
    grow("placed too many", 3, known.name, [here], [here])
    grow("placed nowhere", 3, known.name, [999])
    grow("placed twice", 3, known.name, [here, here])
    grow("placed on nothing", 3, known.name, [])
    entries = [CreatePartitionsTopic(name=known.name, count=5, assignments=None) for _ in range(2)]
    run.ask("twice", CreatePartitionsRequest(topics=entries, timeout_ms=9000), 3)


def config_listing(run: Script) -> None:
    known = topic(run, "x", retention_ms="5000", cleanup_policy="compact")

    def describe(label: str, kind: int, name: str, keys: Any = None, version: int = 4) -> None:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=version >= 3
        )
        run.ask(label, request, version)

    describe("topic", TOPIC, known.name)
    describe("topic, one setting", TOPIC, known.name, ["retention.ms"])
    describe("topic, unknown setting", TOPIC, known.name, ["no.such"])
    describe("topic, no settings", TOPIC, known.name, [])
    describe("topic, version 1", TOPIC, known.name, ["retention.ms"], 1)
    describe("unknown topic", TOPIC, "no-such-topic")
    describe("bad topic", TOPIC, "a b")
    describe("empty topic", TOPIC, "")
    describe("unknown broker", BROKER, "4711")
    describe("not a broker", BROKER, "x")
    describe("unknown kind", 77, "x")
    describe("cluster-wide", BROKER, "")
    keys = [
        "log.retention.ms",
        "log.retention.hours",
        "message.max.bytes",
        "num.partitions",
        "auto.create.topics.enable",
        "log.segment.bytes",
        "compression.type",
        "connections.max.idle.ms",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "min.insync.replicas",
    ]
    describe("broker", BROKER, str(run.node_id), keys)
    for label in ("unknown broker", "broker"):
        _hide_names(run, label)


def _hide_names(run: Script, label: str) -> None:
    """The resource is named by a node's id, which is the broker's own affair."""
    if isinstance(run.answers[label], dict):
        for result in run.answers[label]["results"]:
            result["resource_name"] = "<node>"


def config_changes(run: Script) -> None:
    known = topic(run, "x")

    def change(
        label: str, *ops: tuple[str, int, str | None], kind: int = TOPIC, name: str = known.name
    ) -> None:
        configs = [AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in ops]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        run.ask(label, IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)

    change("good", ("retention.ms", SET, "5"))
    change("unknown setting", ("no.such", SET, "5"))
    change("bad value", ("retention.ms", SET, "soon"))
    change("null value", ("retention.ms", SET, None))
    change("delete", ("retention.ms", DELETE, None))
    change("delete unknown", ("no.such", DELETE, None))
    change("append", ("cleanup.policy", APPEND, "compact"))
    change("append to a number", ("retention.ms", APPEND, "5"))
    change("subtract", ("cleanup.policy", SUBTRACT, "delete"))
    change("bad operation", ("retention.ms", 9, "5"))
    change("twice", ("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    change("nothing")
    change("unknown topic", ("retention.ms", SET, "5"), name="no-such-topic")
    change("bad topic", ("retention.ms", SET, "5"), name="a b")
    change("empty topic", ("retention.ms", SET, "5"), name="")
    change("unknown kind", ("retention.ms", SET, "5"), kind=77)
    change("not a broker", ("message.max.bytes", SET, "5"), kind=BROKER, name="x")
    change("read-only", ("num.partitions", SET, "5"), kind=BROKER, name="")
    min_isr = "min.insync.replicas"
    change("least in sync of the cluster", (min_isr, SET, "1"), kind=BROKER, name="")
    change("least in sync of the cluster, removed", (min_isr, DELETE, None), kind=BROKER, name="")
    for label, operation, value in (("set", SET, "1"), ("removed", DELETE, None)):
        label = f"least in sync of a broker, {label}"
        change(label, (min_isr, operation, value), kind=BROKER, name=str(run.node_id))
        for answer in run.answers[label]["responses"]:
            answer["resource_name"] = "<node>"

    def replace(label: str, name: str, **settings: str | None) -> None:
        configs = [FullConfig(name=n.replace("_", "."), value=v) for n, v in settings.items()]
        resource = FullResource(resource_type=TOPIC, resource_name=name, configs=configs)
        run.ask(label, AlterConfigsRequest(resources=[resource], validate_only=True), 2)

    replace("replaced", known.name, retention_ms="5")
    replace("replaced by nothing", known.name)
    replace("replaced badly", known.name, retention_ms="soon")
    replace("replaced by null", known.name, retention_ms=None)
    replace("replaced unknown setting", known.name, no_such="1")
    replace("replaced unknown topic", "no-such-topic", retention_ms="5")
    same = [
        AlterConfigsResource(resource_type=TOPIC, resource_name=known.name, configs=[])
        for _ in range(2)
    ]
    run.ask("resource twice", IncrementalAlterConfigsRequest(resources=same), 1)
    run.ask("resources of brokers", ListConfigResourcesRequest(resource_types=[BROKER]), 1)
    run.ask("resources of no kind", ListConfigResourcesRequest(resource_types=[99]), 1)
    for label in ("resources of brokers",):
        for entry in run.answers[label]["config_resources"]:
            entry["resource_name"] = "<node>"


def offsets(run: Script) -> None:
    empty, full, trimmed = topic(run, "empty"), topic(run, "full"), topic(run, "trimmed")
    now = int(time.time() * 1000)
    stamps = (now - 9000, now - 5000, now - 7000)
    records = batch([Rec(timestamp=stamp) for stamp in stamps])
    for known in (full, trimmed):
        fill(run, known, records, batch([Rec(timestamp=now - 6000)]))
    entry = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=trimmed.name, partitions=[entry])], timeout_ms=9000
    )
    run.ask("trim", request, 2)

    def ask(label: str, known: RawTopic, timestamp: int, version: int = 11, **fields: Any) -> None:
        partition = ListOffsetsPartition(
            partition_index=fields.pop("partition", 0),
            timestamp=timestamp,
            current_leader_epoch=fields.pop("epoch", -1),
        )
        topics = [ListOffsetsTopic(name=known.name, partitions=[partition])]
        run.ask(label, ListOffsetsRequest(replica_id=-1, topics=topics, **fields), version)
        answer = run.answers[label]
        if isinstance(answer, dict):
            found = answer["topics"][0]["partitions"][0]
            if found["timestamp"] > 0:
                found["timestamp"] -= now

    for which, known in {"empty": empty, "full": full, "trimmed": trimmed}.items():
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100):
            ask(f"{which} {timestamp}", known, timestamp)
        for back in (9000, 8000, 5000, 4000):
            ask(f"{which} {back} ms ago", known, now - back)
    for version in range(1, 12):
        for timestamp in (-1, -3, -4, -5):
            ask(f"version {version} {timestamp}", full, timestamp, version)
    ask("committed", full, -1, isolation_level=1)
    ask("committed max", full, -3, isolation_level=1)
    ask("epoch ahead", full, -1, epoch=5)
    ask("unknown topic", NOWHERE, -1)
    ask("unknown partition", full, -1, partition=9)
    ask("negative partition", full, -1, partition=-1)


def fetches(run: Script) -> None:
    known = topic(run, "x", 2)
    fill(run, known, batch([b"a", b"b"]), batch([b"c"]))

    def ask(label: str, asked: RawTopic, offset: int, version: int = 16, **fields: Any) -> None:
        offsets = {fields.pop("partition", 0): offset}
        run.ask(label, fetch_request([(asked, offsets)], version, **fields), version)

    for offset in (-1, 0, 1, 2, 3, 4, 2**62):
        ask(f"offset {offset}", known, offset)
    for version in range(4, 19):
        ask(f"version {version}", known, 1, version)
        ask(f"version {version} unknown", NOWHERE, 0, version)
    ask("unknown partition", known, 0, partition=9)
    ask("negative partition", known, 0, partition=-1)
    ask("empty partition", known, 0, partition=1)
    ask("epoch", known, 0, current_leader_epoch=0)
    ask("epoch ahead", known, 0, current_leader_epoch=3)
    ask("committed", known, 0, isolation_level=1)
    ask("small", known, 0, partition_max_bytes=1)
    ask("nothing", known, 0, partition_max_bytes=0)
    ask("nothing in all", known, 0, max_bytes=0)
    ask("negative", known, 0, partition_max_bytes=-1)
    ask("no such session", known, 0, session_id=77, session_epoch=1)
    ask("no such session, final", known, 0, session_id=77, session_epoch=-1)
    ask("no such session, new", known, 0, session_id=77, session_epoch=0)
    ask("no session, epoch 3", known, 0, session_id=0, session_epoch=3)
    run.ask("no topics", fetch_request([], 16), 16)


def produces(run: Script) -> None:
    known = topic(run, "x")
    run.ask("good", produce_request(known, batch([b"a"]), 9), 9)
    for version in range(3, 14):
        run.ask(f"version {version}", produce_request(known, batch([b"a"]), version), version)
        request = produce_request(NOWHERE, batch([b"a"]), version)
        run.ask(f"version {version} unknown", request, version)
        run.ask(
            f"version {version} acks",
            produce_request(known, batch([b"a"]), version, acks=7),
            version,
        )
    run.ask("unknown partition", produce_request(known, batch([b"a"]), 9, partition=9), 9)
    run.ask("corrupt", produce_request(known, batch([b"a"], crc=1), 9), 9)
    run.ask("corrupt, new", produce_request(known, batch([b"a"], crc=1), 13), 13)
    future = batch([Rec(timestamp=int(time.time() * 1000) + 7_200_000)])
    run.ask("future", produce_request(known, future, 9), 9)
    run.ask("count", produce_request(known, batch([b"a"], count=3, last_offset_delta=2), 9), 9)
    run.ask("too large", produce_request(known, batch([b"a" * 1_100_000]), 9), 9)
    run.ask("no topics", ProduceRequest(acks=-1, timeout_ms=1000), 9)
    transactional = produce_request(known, batch([b"a"]), 9)
    transactional.transactional_id = "t"
    run.ask("transactional id on plain data", transactional, 9)


def delete_records(run: Script) -> None:
    known = topic(run, "x", 2)
    fill(run, known, batch([b"a", b"b", b"c"]))

    def trim(label: str, *entries: tuple[int, int], name: str = known.name) -> None:
        partitions = [DeleteRecordsPartition(partition_index=p, offset=o) for p, o in entries]
        topics = [DeleteRecordsTopic(name=name, partitions=partitions)]
        run.ask(label, DeleteRecordsRequest(topics=topics, timeout_ms=9000), 2)

    trim("to 0", (0, 0))
    trim("to 2", (0, 2))
    trim("back to 1", (0, 1))
    trim("beyond", (0, 4))
    trim("negative", (0, -2))
    trim("to the end", (0, -1))
    trim("empty partition", (1, -1))
    trim("unknown partition", (7, 0))
    trim("unknown topic", (0, 0), name="no-such-topic")
    compacted = topic(run, "compacted", cleanup_policy="compact")
    fill(run, compacted, batch([Rec(key=b"k")]))
    trim("compacted", (0, 1), name=compacted.name)


def descriptions(run: Script) -> None:
    one, two = topic(run, "a", 3), topic(run, "b", 2)
    with RawClient(run.broker.host, run.broker.port) as client:
        produce(client, one, batch([b"x"]))

    def pages(
        label: str, names: list[str], limit: int = 2000, cursor: Cursor | None = None
    ) -> None:
        topics = [TopicRequest(name=name) for name in names]
        request = DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=limit, cursor=cursor
        )
        run.ask(label, request, 0)

    both = [two.name, one.name]
    pages("both", both)
    for limit in (0, 1, 3, 4, 5):
        pages(f"limit {limit}", both, limit)
    pages("from", both, 2, Cursor(topic_name=one.name, partition_index=2))
    pages("from the next", both, 2, Cursor(topic_name=two.name, partition_index=0))
    pages("from beyond", both, 2, Cursor(topic_name=one.name, partition_index=50))
    pages("from below", both, 2, Cursor(topic_name=one.name, partition_index=-1))
    pages("unknown", ["no-such-topic", one.name])
    pages("bad name", ["a b"])
    for version in (1, 5, 9, 12):
        for label, name in (("unknown", "no-such-topic"), ("bad", "a b"), ("empty", "")):
            topics = [MetadataRequestTopic(name=name)]
            run.ask(f"metadata {label} {version}", MetadataRequest(topics=topics), version)
    by_id = [MetadataRequestTopic(name=None, topic_id=NOWHERE.id)]
    run.ask("metadata by unknown id", MetadataRequest(topics=by_id), 12)
    named = [MetadataRequestTopic(name=one.name, topic_id=two.id)]
    run.ask("metadata by name and id", MetadataRequest(topics=named), 12)
    named = [MetadataRequestTopic(name=one.name)]
    run.ask("metadata", MetadataRequest(topics=named), 13)
    run.ask(
        "metadata, operations",
        MetadataRequest(
            topics=named,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        10,
    )
    for version in range(3):
        run.ask(f"cluster {version}", DescribeClusterRequest(), version)
    run.ask(
        "cluster, operations", DescribeClusterRequest(include_cluster_authorized_operations=True), 1
    )
    run.ask("cluster, controllers", DescribeClusterRequest(endpoint_type=2), 1)
    run.ask("cluster, what", DescribeClusterRequest(endpoint_type=9), 1)
    asked = [
        ProducersTopic(name=one.name, partition_indexes=[0, 9]),
        ProducersTopic(name="no-such-topic", partition_indexes=[0]),
    ]
    run.ask("producers", DescribeProducersRequest(topics=asked), 0)
    dirs = [
        DescribableLogDirTopic(topic=one.name, partitions=[0, 1, 9]),
        DescribableLogDirTopic(topic="no-such-topic", partitions=[0]),
    ]
    run.ask("log dirs", DescribeLogDirsRequest(topics=dirs), 4)
    run.ask("log dirs of nothing", DescribeLogDirsRequest(topics=[]), 4)

    def epoch(
        label: str, known: RawTopic, asked: int, current: int = -1, partition: int = 0
    ) -> None:
        entry = OffsetForLeaderPartition(
            partition=partition, leader_epoch=asked, current_leader_epoch=current
        )
        topics = [OffsetForLeaderTopic(topic=known.name, partitions=[entry])]
        run.ask(label, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)

    epoch("epoch 0", one, 0)
    epoch("epoch 1", one, 1)
    epoch("epoch -1", one, -1)
    epoch("epoch of nothing", two, 0)
    epoch("epoch, current ahead", one, 0, 3)
    epoch("epoch, unknown partition", one, 0, partition=9)
    epoch("epoch, unknown topic", NOWHERE, 0)


def producer_ids(run: Script) -> None:
    with RawClient(run.broker.host, run.broker.port) as client:
        init_producer(client)  # the first one waits for a block of ids

    def ask(label: str, version: int = 4, **fields: Any) -> None:
        base: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        run.ask(label, InitProducerIdRequest(**(base | fields)), version)

    for version in range(6):
        ask(f"version {version}", version)
    ask("empty transactional id", transactional_id="")
    ask("id without epoch", producer_id=5, producer_epoch=-1)
    ask("epoch without id", producer_id=-1, producer_epoch=3)
    ask("both", producer_id=5, producer_epoch=3)
    ask("no timeout", transaction_timeout_ms=0)
    ask("negative timeout", transaction_timeout_ms=-1)


SCRIPTS: dict[str, Callable[[Script], None]] = {
    script.__name__: script
    for script in (
        create_errors,
        delete_errors,
        partition_errors,
        config_listing,
        config_changes,
        offsets,
        fetches,
        produces,
        delete_records,
        descriptions,
        producer_ids,
    )
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_brokers_agree(kafka: BrokerProcess, node: BrokerProcess, name: str) -> None:
    run_name = f"ref-{name}".replace("_", "-")
    found = compare(SCRIPTS[name], run_name, kafka, node)
    allowed = [re.compile(pattern) for script, pattern, _ in DEVIATIONS if script == name]
    left = [line for line in found if not any(pattern.search(line) for pattern in allowed)]
    assert not left, f"{len(left)} differences, as Kafka's | {node.KIND}'s:\n" + "\n".join(left)
