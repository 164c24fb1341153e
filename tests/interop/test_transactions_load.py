"""Apache's own makers of transactions (the performance tool, the exactly-once copier), and what its
log-dump tool reads of transactions in the files.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition

from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from support.calls import find_topic, list_offset
from support.helpers import TopicMaker, consumer, produce_all, producer, take
from support.process import BrokerProcess
from support.raw import RawClient
from support.tools import Tools
from support.transactions import await_end
from support.waiting import CALL_SECONDS_MAX

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"tool-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def raw(txn_node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(txn_node.host, txn_node.port) as client:
        yield client


class Known(NamedTuple):
    producer_id: str
    producer_epoch: str


def open_one(
    broker: BrokerProcess, raw: RawClient, name: str, topic: str
) -> tuple[Producer, Known]:
    """A transaction with messages in it, and its producer as the coordinator knows it."""
    writer = producer(broker, transactional_id=name)
    writer.init_transactions(CALL_SECONDS_MAX)
    writer.begin_transaction()
    produce_all(writer, topic, [{"value": "x"}, {"value": "y", "partition": 1}])
    [known] = raw.call(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
    return writer, Known(str(known.producer_id), str(known.producer_epoch))


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """What a careful reader gets up to the end, which must be this much."""
    produce_all(producer(broker), topic, [{"value": "END"}])
    reader = consumer(broker, isolation_level="read_committed")
    reader.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() or b"" for message in take(reader, count + 1)]
    reader.close()
    assert found.pop() == b"END"
    return found


def test_the_performance_tool(
    tools: Tools, txn_node: BrokerProcess, txn_topic: TopicMaker, raw: RawClient, name: str
) -> None:
    topic = txn_topic()
    said = tools.output(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "3000", "--record-size", "100"),
        *("--throughput", "10000", "--transactional-id", name, "--transaction-duration-ms", "50"),
        *("--command-property", f"bootstrap.servers={txn_node.bootstrap}"),
    )
    assert "3000 records sent" in said
    assert await_end(raw, name).transaction_state == "CompleteCommit"
    assert len(values(txn_node, topic, 3000)) == 3000
    last = list_offset(raw, find_topic(raw, topic), -1).offset
    assert last > 3000 + 1 + 2, "there was one transaction only"


def test_the_copier(
    tools: Tools, txn_node: BrokerProcess, txn_topic: TopicMaker, name: str
) -> None:
    """Kafka's own exactly-once copier, which aborts now and then."""
    source, sink = txn_topic(), txn_topic()
    produce_all(producer(txn_node), source, [{"value": f"{i}"} for i in range(200)])
    said = tools.output_alone(
        "transactional-message-copier",
        *("--broker-list", txn_node.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", sink, "--transactional-id", name, "--consumer-group", name),
        *("--transaction-size", "10", "--max-messages", "200"),
        *("--enable-random-aborts", "--use-group-metadata"),
    )
    reports = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert reports[-1]["remaining"] == 0
    assert values(txn_node, sink, 200) == [f"{i}".encode() for i in range(200)]


def test_the_files(
    tools: Tools, txn_node: BrokerProcess, txn_topic: TopicMaker, raw: RawClient, name: str
) -> None:
    """The log-dump tool reads the states of transactions, and the markers in the data."""
    topic = txn_topic(partitions=2)
    writer, known = open_one(txn_node, raw, name, topic)
    writer.commit_transaction(CALL_SECONDS_MAX)
    await_end(raw, name)
    writer.begin_transaction()
    produce_all(writer, topic, [{"value": "z"}])
    writer.abort_transaction(CALL_SECONDS_MAX)
    await_end(raw, name)

    logs = txn_node.data_dir.glob("__transaction_state-*/*.log")
    text = tools.output(
        "dump-log", "--files", ",".join(str(log) for log in logs), "--transaction-log-decoder"
    )
    assert "Could not decode" not in text
    mine = [line for line in text.splitlines() if f'"transactionalId":"{name}"' in line]
    states = [re.search(r'"transactionStatus":(\d)', line) for line in mine]
    found = [int(state[1]) for state in states if state]
    # Empty, Ongoing (each new partition), PrepareCommit, CompleteCommit, Ongoing, PrepareAbort...
    assert [state for state, _ in itertools.groupby(found)] == [0, 1, 2, 4, 1, 3, 5]
    assert all(f'"producerId":{known.producer_id},' in line for line in mine)

    log = txn_node.partition_dir(topic) / f"{0:020}.log"
    text = tools.output("dump-log", "--files", str(log), "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text) == [
        ("COMMIT", "0"),
        ("ABORT", "0"),
    ]
    heads = re.findall(r"isTransactional: (\w+) isControl: (\w+)", text)
    assert heads == [("true", "false"), ("true", "true")] * 2
    index = log.with_suffix(".txnindex")
    assert re.findall(
        rf"version: 0 producerId: {known.producer_id} firstOffset: 2 lastOffset: 3 "
        r"lastStableOffset: 4",
        tools.output("dump-log", "--files", str(index)),
    )
