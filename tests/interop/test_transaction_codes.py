"""Apache Kafka as the referee for transactions at a partition: bad requests, and the right ones.

Produce, WriteTxnMarkers and what readers and DescribeProducers see of it, in every version. What
differs on purpose stands in `DEVIATIONS`, with its reason; everything else must agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest
from penstock.wire.messages.describe_producers import TopicRequest as ProducersTopic
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.batches import batch, heads
from support.calls import RawTopic, fetch_request, find_topic, init_producer, produce_request
from support.helpers import make_topic
from support.process import BrokerProcess
from support.raw import RawClient
from support.referee import Script, compare
from support.transactions import NOT_READY, newest_features, ready
from support.waiting import eventually

pytestmark = pytest.mark.java

TRANSACTIONAL = 0x10
TRANSACTION = 1  # what FindCoordinator is asked for
PRODUCE_VERSIONS = range(3, 14)
MARKER_VERSIONS = (1, 2)
UNKNOWN_TOPIC_OR_PARTITION = 3

# (script, pattern of the difference, why it is right)
DEVIATIONS: list[tuple[str, str, str]] = [
    (
        "without_an_id",
        r"/partition_responses/0/",
        "what is not transactional is not refused with what is",
    ),
    ("of_nobody", r"", "a transactional batch without a producer would never be committed"),
    (
        "a_newer_epoch",
        r"^/\d+ next/.*/(base_offset: -1 \| 1|error_code: 45 \| 0)$",
        "Kafka keeps the owner out because of another's batch that it has refused",
    ),
]


class Transactional:
    """A producer with a transactional id, by hand."""

    def __init__(self, run: Script, name: str, known: RawTopic) -> None:
        self.run = run
        self.known = known
        self.transactional_id = f"{run.name}-{name}"
        self.producer_id = self.epoch = -1
        self.init()
        self.init()  # so that there is an older epoch

    def init(self) -> None:
        with RawClient(self.run.broker.host, self.run.broker.port) as client:
            asked = FindCoordinatorRequest(
                key_type=TRANSACTION, coordinator_keys=[self.transactional_id]
            )
            eventually(lambda: not client.call(asked, 4).coordinators[0].error_code)
            answer = ready(
                client,
                InitProducerIdRequest(
                    transactional_id=self.transactional_id, transaction_timeout_ms=60_000
                ),
                4,
            )
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, *partitions: int) -> None:
        with RawClient(self.run.broker.host, self.run.broker.port) as client:
            topic = AddPartitionsToTxnTopic(name=self.known.name, partitions=list(partitions))
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[topic],
            )

            def added() -> bool:
                [found] = client.call(request, 3).results_by_topic_v3_and_below
                codes = {p.partition_error_code for p in found.results_by_partition}
                assert codes <= {0, *NOT_READY}
                return codes == {0}

            eventually(added)

    def end(self, *, commit: bool, version: int = 4) -> None:
        with RawClient(self.run.broker.host, self.run.broker.port) as client:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            )
            answer = ready(client, request, version)
            self._wait_for_markers(client)
        assert answer.error_code == 0
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def _wait_for_markers(self, client: RawClient) -> None:
        """Until partition 0 has no open transaction of this producer."""
        named = ProducersTopic(name=self.known.name, partition_indexes=[0])

        def written() -> bool:
            answer = client.call(DescribeProducersRequest(topics=[named]), 0)
            return all(
                producer.current_txn_start_offset < 0
                for partition in answer.topics[0].partitions
                for producer in partition.active_producers
                if producer.producer_id == self.producer_id
            )

        eventually(written)

    def records(self, sequence: int, **fields: Any) -> bytes:
        base = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL,
        }
        return batch([b"x"], **(base | fields))

    def send(self, label: str, version: int, sequence: int, **how: Any) -> None:
        """Produce one batch and note the answer; keywords of the batch or of the request."""
        asked = {k: how.pop(k) for k in ("acks", "partition") if k in how}
        transactional_id = how.pop("transactional_id", self.transactional_id)
        request = produce_request(self.known, self.records(sequence, **how), version, **asked)
        request.transactional_id = transactional_id
        self.run.ask(label, request, version)

    def mark(self, label: str, version: int = 1, *, commit: bool = True, **how: Any) -> None:
        """Write a marker as a coordinator would; the answer is noted."""
        topics = how.pop("topics", {self.known.name: [0]})
        base = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "coordinator_epoch": 0,
            "transaction_result": commit,
        }
        marker = WritableTxnMarker(
            **(base | how),
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
        self.run.ask(label, WriteTxnMarkersRequest(markers=[marker]), version)

    def look(self, label: str, partition: int = 0) -> None:
        """What readers and administrators see."""
        known = self.known
        for isolation in (0, 1):
            self._fetch(f"{label}, fetch {isolation}", partition, isolation)
            asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
            topics = [ListOffsetsTopic(name=known.name, partitions=[asked])]
            latest = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
            self.run.ask(f"{label}, end {isolation}", latest, 7)
        named = ProducersTopic(name=known.name, partition_indexes=[partition])
        self.run.ask(f"{label}, producers", DescribeProducersRequest(topics=[named]), 0)
        self._without_times(f"{label}, producers")

    def _fetch(self, label: str, partition: int, isolation: int) -> None:
        wanted = [(self.known, {partition: 0})]
        answer = self.run.ask(label, fetch_request(wanted, 12, isolation_level=isolation), 12)
        [found] = answer.responses[0].partitions
        # Markers carry the time at which they were written.
        self.run.answers[label] = (
            found.error_code,
            found.high_watermark,
            found.last_stable_offset,
            None
            if found.aborted_transactions is None
            else [aborted.first_offset for aborted in found.aborted_transactions],
            [
                (head.base_offset, head.attributes, head.producer_epoch, head.base_sequence)
                for head in heads(found.records)
            ],
        )

    def _without_times(self, label: str) -> None:
        for topic in self.run.answers[label]["topics"]:
            for partition in topic["partitions"]:
                for producer in partition["active_producers"]:
                    producer["last_timestamp"] = producer["last_timestamp"] >= 0


def topic(run: Script, suffix: str, partitions: int = 1) -> RawTopic:
    name = make_topic(run.broker, f"{run.name}-{suffix}", partitions)
    with RawClient(run.broker.host, run.broker.port) as client:
        return find_topic(client, name)


def without_a_transaction(run: Script) -> None:
    known = topic(run, "x", 2)
    with RawClient(run.broker.host, run.broker.port) as client:
        init_producer(client)
    for version in PRODUCE_VERSIONS:
        sender = Transactional(run, f"v{version}", known)
        sender.send(f"{version} no id", version, 0, transactional_id=None)
        sender.send(f"{version} another's id", version, 0, transactional_id=f"{run.name}-nobody")
        sender.send(f"{version} empty id", version, 0, transactional_id="")
        sender.send(f"{version} wrong producer", version, 0, producer_id=sender.producer_id + 500)
        sender.send(f"{version} newer epoch", version, 0, producer_epoch=sender.epoch + 1)
        sender.send(f"{version} no partition", version, 0, partition=7)
        sender.send(f"{version} not added", version, 0)
        sender.send(f"{version} plain data", version, 0, attributes=0, partition=1)
        sender.send(f"{version} plain data, no producer", version, -1, attributes=0, producer_id=-1)


def of_nobody(run: Script) -> None:
    for version in PRODUCE_VERSIONS:
        known = topic(run, f"v{version}")
        sender = Transactional(run, f"v{version}", known)
        sender.send(f"{version}", version, -1, producer_id=-1, producer_epoch=-1)


def in_a_transaction(run: Script) -> None:
    for version in PRODUCE_VERSIONS:
        known = topic(run, f"v{version}", 2)
        sender = Transactional(run, f"v{version}", known)
        sender.add(0)
        sender.send(f"{version} acks 0, another's id", version, 0, acks=0, transactional_id="no")
        sender.send(f"{version} acks 1", version, 0, acks=1)
        sender.send(f"{version} acks 2", version, 1, acks=2)
        sender.send(f"{version} first", version, 1)
        sender.send(f"{version} again", version, 1)
        sender.send(f"{version} gap", version, 5)
        sender.send(f"{version} plain batch", version, 2, attributes=0)
        sender.send(f"{version} without id", version, 2, transactional_id=None)
        sender.send(f"{version} id of another", version, 2, transactional_id=f"{run.name}-nobody")
        sender.send(f"{version} other partition", version, 0, partition=1)
        sender.look(f"{version} open")
        old = sender.epoch
        sender.end(commit=False)
        sender.init()
        sender.add(0)
        assert sender.epoch > old
        sender.send(f"{version} older epoch", version, 2, producer_epoch=old)
        sender.send(f"{version} gap in a new epoch", version, 3)
        sender.send(f"{version} next", version, 0)
        sender.look(f"{version} second")


def a_newer_epoch(run: Script) -> None:
    """Refused in the middle of a transaction; and what becomes of the owner's next batch."""
    for version in PRODUCE_VERSIONS:
        known = topic(run, f"v{version}")
        sender = Transactional(run, f"v{version}", known)
        sender.add(0)
        sender.send(f"{version} first", version, 0)
        sender.send(f"{version} newer epoch", version, 0, producer_epoch=sender.epoch + 1)
        sender.send(f"{version} next", version, 1)


def together(known: RawTopic, version: int, *parts: bytes, **how: Any) -> ProduceRequest:
    """A request with records for partitions 0, 1, ..."""
    named = {"topic_id": known.id} if version >= 13 else {"name": known.name}
    data = [PartitionProduceData(index=i, records=records) for i, records in enumerate(parts)]
    topics = [TopicProduceData(partition_data=data, **named)]
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics, **how)


def several_producers(run: Script) -> None:
    known = topic(run, "x", 2)
    one, two = Transactional(run, "one", known), Transactional(run, "two", known)
    one.add(0, 1)
    two.add(1)
    plain, mine = batch([b"x"]), {"transactional_id": one.transactional_id}
    for version in PRODUCE_VERSIONS:
        request = together(known, version, one.records(0), two.records(0), **mine)
        run.ask(f"{version} two producers", request, version)
        request = together(known, version, plain, one.records(0), **mine)
        run.ask(f"{version} plain and transactional", request, version)


def without_an_id(run: Script) -> None:
    for version in PRODUCE_VERSIONS:
        known = topic(run, f"v{version}", 2)
        sender = Transactional(run, f"v{version}", known)
        request = together(known, version, batch([b"x"]), sender.records(0))
        run.ask(f"{version}", request, version)


def sequences_of_version_2(run: Script) -> None:
    """From Produce 12 on a transaction begins with sequence 0 where nothing is known."""
    for version in (12, 13):
        known = topic(run, f"v{version}")
        sender = Transactional(run, f"v{version}", known)
        sender.send(f"{version} begins with 3", version, 3)
        sender.send(f"{version} begins with 0", version, 0)
        sender.send(f"{version} goes on", version, 1)
        old = sender.epoch
        sender.end(commit=True, version=5)
        sender.send(f"{version} the epoch of before", version, 2, producer_epoch=old)
        sender.send(f"{version} the next begins with 2", version, 2)
        sender.send(f"{version} the next begins with 0", version, 0)
        sender.look(f"{version} open")
        sender.end(commit=False, version=5)


def markers(run: Script) -> None:
    for version in MARKER_VERSIONS:
        known = topic(run, f"v{version}", 2)
        sender = Transactional(run, f"v{version}", known)
        sender.mark(f"{version} unknown topic", version, topics={"no-such-topic": [0]})
        sender.mark(f"{version} unknown partition", version, topics={known.name: [0, 7, -1]})
        run.ask(f"{version} nothing", WriteTxnMarkersRequest(markers=[]), version)
        sender.mark(f"{version} of no transaction", version, topics={known.name: [1]})
        sender.look(f"{version} marker alone", 1)
        sender.add(0)
        sender.send(f"{version} data", 9, 0)
        sender.mark(f"{version} older epoch", version, producer_epoch=sender.epoch - 1)
        sender.mark(f"{version} older coordinator", version, coordinator_epoch=-1)
        sender.look(f"{version} before")
        sender.mark(f"{version} commit", version, coordinator_epoch=3)
        sender.look(f"{version} committed")
        sender.mark(f"{version} again", version, coordinator_epoch=3)
        sender.mark(f"{version} other result", version, commit=False, coordinator_epoch=3)
        sender.mark(f"{version} coordinator of before", version, coordinator_epoch=2)
        sender.mark(f"{version} newer epoch", version, producer_epoch=9, coordinator_epoch=3)
        sender.send(f"{version} data of the old epoch", 9, 1)
        sender.look(f"{version} after")


def markers_of_version_2(run: Script) -> None:
    known = topic(run, "x")
    sender = Transactional(run, "x", known)
    sender.add(0)
    sender.send("data", 9, 0)
    marked = {"transaction_version": 2, "coordinator_epoch": 1}
    sender.mark("same epoch", 2, **marked)
    sender.look("still open")
    sender.mark("newer epoch", 2, producer_epoch=sender.epoch + 1, commit=False, **marked)
    sender.look("aborted")
    sender.mark("again", 2, producer_epoch=sender.epoch + 1, commit=False, **marked)
    sender.mark("older epoch", 2, producer_epoch=sender.epoch, **marked)
    last = {"producer_epoch": 32767}
    sender.mark("last epoch", 2, **(marked | last))
    sender.mark("last epoch again", 2, **(marked | last))
    sender.mark("as version 1", 2, coordinator_epoch=1, **last)


def features(run: Script) -> None:
    for version in range(5):
        with RawClient(run.broker.host, run.broker.port) as client:
            answer = client.call(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"), version
            )
        run.answers[f"supported {version}"] = sorted(
            (f.name, f.min_version, f.max_version)
            for f in answer.supported_features
            if f.name in ("transaction.version", "group.version")
        )
        run.answers[f"finalized {version}"] = sorted(
            (f.name, f.min_version_level, f.max_version_level)
            for f in answer.finalized_features
            if f.name in ("transaction.version", "group.version")
        )


SCRIPTS: dict[str, Callable[[Script], None]] = {
    script.__name__: script
    for script in (
        without_a_transaction,
        of_nobody,
        in_a_transaction,
        a_newer_epoch,
        several_producers,
        without_an_id,
        sequences_of_version_2,
        markers,
        markers_of_version_2,
        features,
    )
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_brokers_agree(kafka: BrokerProcess, node: BrokerProcess, name: str) -> None:
    newest_features(kafka)
    newest_features(node)
    found = compare(SCRIPTS[name], f"txn-{name}".replace("_", "-"), kafka, node)
    allowed = [re.compile(pattern) for script, pattern, _ in DEVIATIONS if script == name]
    left = [line for line in found if not any(pattern.search(line) for pattern in allowed)]
    assert not left, f"{len(left)} differences, as Kafka's | {node.KIND}'s:\n" + "\n".join(left)
