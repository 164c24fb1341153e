"""Offsets in transactions: what Apache Kafka answers, step by step, and librdkafka end to end.

`--target kafka` shows that each expectation is Kafka's own.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka.admin import KafkaAdminClient

from penstock.base.errors import ErrorCode as E
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.join_group import JoinGroupRequestProtocol
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.calls import find_topic
from support.group_calls import assignment, await_coordinator, beat, join, owned, subscription, sync
from support.groups import STRATEGIES, publish
from support.helpers import TopicMaker, consumer, producer, take
from support.process import BrokerProcess
from support.raw import RawClient
from support.tools import Tools
from support.waiting import eventually

BUSY = (
    E.CONCURRENT_TRANSACTIONS,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
)
UNSTABLE = E.UNSTABLE_OFFSET_COMMIT
PARTITIONS = 4
_numbers = itertools.count(1)


class Txn:
    """A transactional producer that stores offsets, request by request."""

    def __init__(self, client: RawClient, group: str) -> None:
        self.client = client
        self.group = group
        self.id = f"txn-{os.getpid()}-{next(_numbers)}"
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id])
        eventually(lambda: client.call(find, 4).coordinators[0].error_code == 0)
        self.begin()

    def begin(self) -> None:
        """A new epoch, which fences whoever has the old one."""
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)
        found = self._until_ready(lambda: self.client.call(request, 4))
        assert found.error_code == 0
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch

    def _until_ready(self, call: Callable[[], Any]) -> Any:
        def answered() -> Any:
            answer = call()
            return None if answer.error_code in BUSY else answer

        return eventually(answered)

    def add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )
        assert self._until_ready(lambda: self.client.call(request, 3)).error_code == 0

    def commit(
        self, topic: str, offset: int, partition: int = 0, version: int = 3, **fields: Any
    ) -> int:
        """The error code of a TxnOffsetCommit for one partition."""
        data = TxnOffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_metadata=fields.pop("metadata", ""),
        )
        base: dict[str, Any] = {
            "transactional_id": self.id,
            "group_id": self.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        request = TxnOffsetCommitRequest(
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[data])], **(base | fields)
        )

        def answered() -> int | None:
            [of_topic] = self.client.call(request, version).topics
            code = int(of_topic.partitions[0].error_code)
            return None if code in BUSY else code + 1

        return eventually(answered) - 1

    def end(self, commit: bool, version: int = 4) -> None:
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self._until_ready(lambda: self.client.call(request, version))
        assert answer.error_code == 0
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


def plain_commit(
    client: RawClient, group: str, topic: str, offset: int, partition: int = 0, **fields: Any
) -> int:
    data = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[data])],
        **fields,
    )
    return int(client.call(request, 9).topics[0].partitions[0].error_code)


def fetched(
    client: RawClient, group: str, topic: str | None, *, stable: bool = False
) -> dict[int, tuple[int, int]]:
    """Error code and offset by partition: of all partitions of the topic, or all committed ones."""
    topics = None
    if topic is not None:
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(PARTITIONS)))
        topics = [wanted]
    one = OffsetFetchRequestGroup(group_id=group, topics=topics)
    [found] = client.call(OffsetFetchRequest(groups=[one], require_stable=stable), 9).groups
    assert found.error_code == 0
    return {
        p.partition_index: (p.error_code, p.committed_offset)
        for t in found.topics
        for p in t.partitions
    }


def settled(client: RawClient, group: str, topic: str) -> dict[int, int]:
    """The offsets once no transaction holds them back: markers come after the answer to EndTxn."""

    def stable() -> dict[int, tuple[int, int]] | None:
        found = fetched(client, group, topic, stable=True)
        return found if all(code == 0 for code, _ in found.values()) else None

    return {p: offset for p, (_, offset) in eventually(stable).items() if offset >= 0}


@pytest.fixture(scope="module")
def _newer_transactions(shared_group_node: BrokerProcess) -> None:
    """Switches on in Kafka what its storage tool, which was not run, would have switched on."""
    if shared_group_node.KIND == "kafka":
        client = KafkaAdminClient(bootstrap_servers=shared_group_node.bootstrap)
        done = client.update_features({"transaction.version": 2})
        client.close()
        assert done == {"transaction.version": "OK"}, done


@pytest.fixture
def raw(group_node: BrokerProcess, group_id: str, _newer_transactions: None) -> Iterator[RawClient]:
    with RawClient(group_node.host, group_node.port) as client:
        await_coordinator(client, group_id)
        yield client


@pytest.fixture
def topic(group_topic: TopicMaker) -> str:
    return group_topic(partitions=PARTITIONS)


@pytest.fixture
def txn(raw: RawClient, group_id: str) -> Txn:
    return Txn(raw, group_id)


class Joined(NamedTuple):
    """The one member of a group."""

    member: str
    epoch: int


def join_classic(raw: RawClient, group: str, topic: str, **fields: Any) -> Joined:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(topic))]
    joined = join(raw, group, protocols=protocols, **fields)
    assert joined.error_code == 0
    member, generation = joined.member_id, joined.generation_id
    assert sync(raw, group, generation, member, **{member: assignment(topic, 0)}).error_code == 0
    return Joined(member, generation)


def join_consumer(raw: RawClient, group: str, topic: str) -> Joined:
    found = find_topic(raw, topic)
    got = beat(raw, group, "m", 0, subscribed_topic_names=[topic])
    while not (got.assignment and got.assignment.topic_partitions):
        assert got.error_code == 0, got.error_message
        got = beat(raw, group, "m", got.member_epoch)
    holds = owned(found.id, *range(PARTITIONS))
    got = beat(raw, group, "m", got.member_epoch, topic_partitions=holds)
    assert got.error_code == 0, got.error_message
    return Joined("m", got.member_epoch)


# Pending, committed, aborted


@pytest.mark.parametrize("version", range(6))
def test_offsets_count_when_the_transaction_commits(
    raw: RawClient, txn: Txn, group_id: str, topic: str, version: int
) -> None:
    if version < 5:
        txn.add_offsets()
    assert txn.commit(topic, 5, version=version) == 0
    assert txn.commit(topic, 6, partition=1, version=version) == 0
    assert fetched(raw, group_id, topic)[0] == (0, -1)
    assert fetched(raw, group_id, None) == {}
    assert fetched(raw, group_id, topic, stable=True) == {
        0: (UNSTABLE, -1),
        1: (UNSTABLE, -1),
        2: (0, -1),
        3: (0, -1),
    }
    txn.end(commit=True, version=version)
    assert settled(raw, group_id, topic) == {0: 5, 1: 6}


def test_offsets_of_an_aborted_transaction_do_not_count(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    assert plain_commit(raw, group_id, topic, 1) == 0
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    assert txn.commit(topic, 6, partition=1) == 0
    assert fetched(raw, group_id, None) == {0: (0, 1)}
    assert fetched(raw, group_id, None, stable=True) == {0: (UNSTABLE, -1)}
    txn.end(commit=False)
    assert settled(raw, group_id, topic) == {0: 1}


def test_the_later_record_counts(raw: RawClient, txn: Txn, group_id: str, topic: str) -> None:
    other = Txn(raw, group_id)
    txn.add_offsets()
    other.add_offsets()
    assert txn.commit(topic, 5) == 0
    assert plain_commit(raw, group_id, topic, 9) == 0
    assert txn.commit(topic, 6, partition=1) == 0
    assert other.commit(topic, 7, partition=1) == 0
    assert plain_commit(raw, group_id, topic, 9, partition=2) == 0
    assert txn.commit(topic, 8, partition=2) == 0
    other.end(commit=True)
    eventually(lambda: fetched(raw, group_id, topic)[1] == (0, 7))
    assert fetched(raw, group_id, topic, stable=True)[1] == (UNSTABLE, -1)
    txn.end(commit=True)
    assert settled(raw, group_id, topic) == {0: 9, 1: 7, 2: 8}


def test_a_transaction_alone_makes_a_group(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    groups = {g.group_id: g for g in raw.call(ListGroupsRequest(), 5).groups}
    assert (groups[group_id].group_type, groups[group_id].group_state) == ("classic", "Empty")
    txn.end(commit=False)


# Who may commit


def test_a_group_that_is_not_there(txn: Txn, topic: str) -> None:
    txn.add_offsets()
    assert txn.commit(topic, 1, generation_id=3, member_id="m") == E.ILLEGAL_GENERATION
    assert txn.commit(topic, 1, group_id="") == E.INVALID_GROUP_ID
    assert txn.commit("no-such-topic", 1) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert txn.commit(topic, 1, partition=PARTITIONS) == E.UNKNOWN_TOPIC_OR_PARTITION
    too_large = txn.commit(topic, 1, metadata="x" * 4097)
    assert too_large == E.OFFSET_METADATA_TOO_LARGE
    txn.end(commit=False)


def test_members_of_a_classic_group(raw: RawClient, txn: Txn, group_id: str, topic: str) -> None:
    member, generation = join_classic(raw, group_id, topic)
    good: dict[str, Any] = {"member_id": member, "generation_id": generation}
    txn.add_offsets()
    assert txn.commit(topic, 1, **good) == 0
    assert txn.commit(topic, 1, **good | {"generation_id": 9}) == E.ILLEGAL_GENERATION
    assert txn.commit(topic, 1, **good | {"member_id": "x"}) == E.UNKNOWN_MEMBER_ID
    assert txn.commit(topic, 1, **good | {"member_id": ""}) == E.UNKNOWN_MEMBER_ID
    assert txn.commit(topic, 1, **good, group_instance_id="i") == E.UNKNOWN_MEMBER_ID
    assert txn.commit(topic, 1, version=2) == 0, "an old client does not say who it is"
    assert txn.commit(topic, 1) == 0, "nor need a new one"
    assert plain_commit(raw, group_id, topic, 1) == E.UNKNOWN_MEMBER_ID
    txn.end(commit=False)


def test_a_group_that_waits_for_its_assignment(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    joined = join(raw, group_id)
    member, generation = joined.member_id, joined.generation_id
    who = {"member_id": member, "generation_id_or_member_epoch": generation}
    assert plain_commit(raw, group_id, topic, 1, **who) == E.REBALANCE_IN_PROGRESS
    txn.add_offsets()
    # A transaction that was begun before may be ended.
    assert txn.commit(topic, 5, member_id=member, generation_id=generation) == 0
    assert txn.commit(topic, 5, member_id=member, generation_id=9) == E.ILLEGAL_GENERATION
    txn.end(commit=False)


def test_what_is_missing_is_said_to_be_missing_whatever_the_group_says(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    txn.add_offsets()
    indexes, missing = (0, 9), E.UNKNOWN_TOPIC_OR_PARTITION
    plain = OffsetCommitRequest(
        group_id=group_id,
        member_id="m",
        generation_id_or_member_epoch=3,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(partition_index=i) for i in indexes],
            )
        ],
    )
    [answer] = raw.call(plain, 9).topics
    codes = {p.partition_index: p.error_code for p in answer.partitions}
    assert codes == {0: E.GROUP_ID_NOT_FOUND, 9: missing}
    transactional = TxnOffsetCommitRequest(
        transactional_id=txn.id,
        group_id=group_id,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        member_id="m",
        generation_id=3,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=i) for i in indexes],
            )
        ],
    )
    [found] = raw.call(transactional, 3).topics
    codes = {p.partition_index: p.error_code for p in found.partitions}
    assert codes == {0: E.ILLEGAL_GENERATION, 9: missing}
    txn.end(commit=False)


def test_a_static_member_whose_place_is_taken(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    member, generation = join_classic(raw, group_id, topic, group_instance_id="i")
    good: dict[str, Any] = {
        "member_id": member,
        "generation_id": generation,
        "group_instance_id": "i",
    }
    txn.add_offsets()
    assert txn.commit(topic, 1, **good) == 0
    assert txn.commit(topic, 1, **good | {"member_id": "old"}) == E.FENCED_INSTANCE_ID
    txn.end(commit=False)


def test_members_of_a_consumer_group(raw: RawClient, txn: Txn, group_id: str, topic: str) -> None:
    member, epoch = join_consumer(raw, group_id, topic)
    good: dict[str, Any] = {"member_id": member, "generation_id": epoch}
    txn.add_offsets()
    assert txn.commit(topic, 1, **good) == 0
    assert txn.commit(topic, 1, **good | {"generation_id": epoch + 1}) == E.ILLEGAL_GENERATION
    assert txn.commit(topic, 1, **good | {"generation_id": 0}) == E.ILLEGAL_GENERATION
    assert txn.commit(topic, 1, **good | {"member_id": "x"}) == E.UNKNOWN_MEMBER_ID
    assert txn.commit(topic, 1, version=2) == 0
    assert txn.commit(topic, 1) == 0
    txn.end(commit=False)


def test_an_older_epoch_commits_what_was_held_in_it(
    raw: RawClient, txn: Txn, group_id: str, topic: str, group_topic: TopicMaker
) -> None:
    member, epoch = join_consumer(raw, group_id, topic)
    another = group_topic()
    got = beat(raw, group_id, member, epoch, subscribed_topic_names=[topic, another])

    def newer() -> Any:
        answer = beat(raw, group_id, member, got.member_epoch)
        return answer if answer.member_epoch > epoch and answer.assignment else None

    if not (got.member_epoch > epoch and got.assignment):
        eventually(newer)
    txn.add_offsets()
    old: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": epoch}
    assert plain_commit(raw, group_id, topic, 3, **old) == 0
    assert plain_commit(raw, group_id, another, 3, **old) == E.STALE_MEMBER_EPOCH
    before = old | {"generation_id_or_member_epoch": 0}
    assert plain_commit(raw, group_id, topic, 3, **before) == E.STALE_MEMBER_EPOCH
    # One partition that was not held refuses all of them.
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=name, partitions=[OffsetCommitRequestPartition(committed_offset=4)]
            )
            for name in (topic, another)
        ],
        **old,
    )
    codes = [t.partitions[0].error_code for t in raw.call(request, 9).topics]
    assert codes == [E.STALE_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH]
    assert fetched(raw, group_id, topic)[0] == (0, 3)
    transactional: dict[str, Any] = {"member_id": member, "generation_id": epoch}
    assert txn.commit(topic, 5, **transactional) == 0
    assert txn.commit(another, 5, **transactional) == E.ILLEGAL_GENERATION
    txn.end(commit=False)


# Zombies


def test_a_producer_of_an_older_epoch(raw: RawClient, txn: Txn, group_id: str, topic: str) -> None:
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    old_epoch = txn.epoch
    txn.begin()
    assert settled(raw, group_id, topic) == {}, "its transaction was aborted"
    for version in (2, 3, 4, 5):
        code = txn.commit(topic, 6, producer_epoch=old_epoch, version=version)
        assert code == E.INVALID_PRODUCER_EPOCH
    assert fetched(raw, group_id, topic, stable=True)[0] == (0, -1)


def test_a_transaction_that_does_not_know_of_the_group(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    assert txn.commit(topic, 5, version=3) == E.INVALID_TXN_STATE
    assert txn.commit(topic, 5, version=4) == E.TRANSACTION_ABORTABLE
    assert txn.commit(topic, 5, transactional_id="none") == E.INVALID_PRODUCER_ID_MAPPING
    assert fetched(raw, group_id, topic, stable=True)[0] == (0, -1)
    # A topic that is not there is looked at first.
    assert txn.commit("no-such-topic", 5, version=3) == E.UNKNOWN_TOPIC_OR_PARTITION


# Deletion


def test_deleted_offsets_do_not_come_back(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    assert plain_commit(raw, group_id, topic, 1) == 0
    txn.add_offsets()
    for partition in range(3):
        assert txn.commit(topic, 5, partition=partition) == 0
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in (0, 1)],
            )
        ],
    )
    answer = raw.call(request, 0)
    assert [p.error_code for p in answer.topics[0].partitions] == [0, 0]
    assert fetched(raw, group_id, topic, stable=True) == {
        0: (0, -1),
        1: (0, -1),
        2: (UNSTABLE, -1),
        3: (0, -1),
    }
    txn.end(commit=True)
    assert settled(raw, group_id, topic) == {2: 5}


def test_a_deleted_group_does_not_come_back(
    raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    assert plain_commit(raw, group_id, topic, 1) == 0
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    assert txn.commit(topic, 5, partition=1) == 0
    [result] = raw.call(DeleteGroupsRequest(groups_names=[group_id]), 2).results
    assert result.error_code == 0
    assert fetched(raw, group_id, topic, stable=True)[0] == (0, -1)
    txn.end(commit=True)
    assert settled(raw, group_id, topic) == {}


def test_offsets_in_a_deleted_topic_do_not_come_back(
    raw: RawClient, txn: Txn, group_id: str, topic: str, group_topic: TopicMaker
) -> None:
    other = group_topic()
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    assert txn.commit(other, 6) == 0
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    assert raw.call(deleted, 6).responses[0].error_code == 0
    eventually(lambda: fetched(raw, group_id, topic, stable=True)[0] == (0, -1))
    txn.end(commit=True)
    assert settled(raw, group_id, other) == {0: 6}
    assert settled(raw, group_id, topic) == {}


# Tools


def test_our_command_line_shows_what_is_committed(
    group_node: BrokerProcess, raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    assert plain_commit(raw, group_id, topic, 1) == 0
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    assert txn.commit(topic, 6, partition=1) == 0
    command = [sys.executable, "-m", "penstock.cli", "group", "describe", group_id]
    command += ["--bootstrap", group_node.bootstrap, "--format", "json"]
    said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    [described] = json.loads(said)
    committed = {p["partition"]: p["committed"] for p in described["partitions"]}
    assert {p: offset for p, offset in committed.items() if offset is not None} == {0: 1}
    txn.end(commit=False)


@pytest.mark.java
def test_apaches_command_line_shows_what_is_committed(
    group_node: BrokerProcess, raw: RawClient, txn: Txn, group_id: str, topic: str
) -> None:
    assert plain_commit(raw, group_id, topic, 1) == 0
    txn.add_offsets()
    assert txn.commit(topic, 5) == 0
    assert txn.commit(topic, 6, partition=1) == 0
    text = Tools.output_alone(
        "consumer-groups",
        *("--bootstrap-server", group_node.bootstrap),
        *("--describe", "--group", group_id),
    )
    rows = [line.split() for line in text.splitlines() if topic in line]
    assert [(row[2], row[3]) for row in rows] == [("0", "1")]
    txn.end(commit=False)


# librdkafka


@pytest.fixture
def transactional(
    group_node: BrokerProcess, _newer_transactions: None
) -> Iterator[Callable[[], Producer]]:
    made: list[Producer] = []

    def make() -> Producer:
        name = f"txn-{os.getpid()}-{next(_numbers)}"
        client = producer(group_node, transactional_id=name)
        client.init_transactions(30)
        made.append(client)
        return client

    yield make
    for client in made:
        client.flush(5)


def positions(client: Consumer) -> list[TopicPartition]:
    return list(client.position(client.assignment()))


@pytest.mark.parametrize("strategy", ["range", "consumer"])
def test_consume_transform_produce(
    group_node: BrokerProcess,
    group_topic: TopicMaker,
    group_id: str,
    transactional: Callable[[], Producer],
    strategy: str,
) -> None:
    source, sink = group_topic(partitions=2), group_topic()
    publish(group_node, source, [f"v{i}" for i in range(20)], partitions=2)
    settings = STRATEGIES[strategy] | {"group_id": group_id, "auto_offset_reset": "earliest"}
    client = transactional()

    def work(commit: bool) -> list[bytes]:
        """One consumer's life: it reads everything and ends one transaction."""
        reader = consumer(group_node, **settings)
        try:
            reader.subscribe([source])
            values = [m.value() or b"" for m in take(reader, 20)]
            client.begin_transaction()
            for value in values:
                client.produce(sink, value)
            client.send_offsets_to_transaction(
                positions(reader), reader.consumer_group_metadata(), 30
            )
            client.commit_transaction(30) if commit else client.abort_transaction(30)
            return values
        finally:
            reader.close()

    assert len(work(commit=False)) == 20
    assert sorted(work(commit=True)) == sorted(f"v{i}".encode() for i in range(20))
    reader = consumer(group_node, **settings)
    stored = reader.committed([TopicPartition(source, p) for p in range(2)], timeout=20)
    assert [p.offset for p in stored] == [10, 10]
    reader.close()


@pytest.mark.parametrize("strategy", ["range", "consumer"])
def test_a_member_that_was_thrown_out_cannot_commit(
    group_node: BrokerProcess,
    group_topic: TopicMaker,
    group_id: str,
    transactional: Callable[[], Producer],
    strategy: str,
) -> None:
    source = group_topic()
    publish(group_node, source, ["a", "b"])
    settings = STRATEGIES[strategy] | {"group_id": group_id, "auto_offset_reset": "earliest"}
    client = transactional()
    reader = consumer(group_node, **settings)
    reader.subscribe([source])
    take(reader, 2)
    held, metadata = positions(reader), reader.consumer_group_metadata()
    reader.close()
    client.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        client.send_offsets_to_transaction(held, metadata, 30)
    assert refused.value.args[0].txn_requires_abort()
    client.abort_transaction(30)
