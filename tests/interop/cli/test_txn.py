"""Every `penstock txn` command, against a real broker.

The broker does not verify transactional writes (`transaction.partition.verification.enable`), so
that transactions can be made to hang by hand, as older brokers and clients let them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from support.batches import Rec, batch
from support.calls import find_topic, produce_request
from support.helpers import make_topic, producer, read
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

Run = Callable[..., Any]
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "4",
}
LONG_AGO_MS = 1_700_000_000_000
TRANSACTIONAL = 0x10
PRODUCE_VERSION = 11  # the last that adds no partition to a transaction
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def txn_node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("txn-node"))
    broker.settings |= SETTINGS
    with broker:
        yield broker


@pytest.fixture
def run(txn_node: BrokerProcess, run_at: Run) -> Run:
    """Runs `penstock ARGS` against the broker of this file."""
    return lambda *args, **options: run_at(txn_node.bootstrap, *args, **options)


@pytest.fixture
def two(txn_node: BrokerProcess, topic_name: Callable[[], str]) -> str:
    """A topic with two partitions."""
    return make_topic(txn_node, topic_name(), 2)


@pytest.fixture
def name() -> str:
    """A transactional id that no other test uses."""
    return f"x-{os.getpid()}-{next(_numbers)}"


@contextmanager
def open_transaction(node: BrokerProcess, name: str, topic: str) -> Iterator[Producer]:
    """A producer that has written one message and does not end its transaction."""
    client = producer(node, transactional_id=name, transaction_timeout_ms=60_000)
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, b"open", partition=0)
    client.flush(30)
    yield client


class Raw:
    """A transactional producer by hand, who can do what no client library would."""

    def __init__(self, node: BrokerProcess, name: str) -> None:
        self.client = RawClient(node.host, node.port)
        self.name = name
        self.producer_id, self.epoch = 4242, 0

    def init(self) -> None:
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        eventually(lambda: not self.client.call(asked, 4).coordinators[0].error_code)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)

        def done() -> bool:
            answer = self.client.call(request, 4)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return bool(answer.error_code == 0)

        eventually(done)

    def add(self, topic: str, partition: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

        def done() -> bool:
            [found] = self.client.call(request, 3).results_by_topic_v3_and_below
            return bool(found.results_by_partition[0].partition_error_code == 0)

        eventually(done)

    def write(self, topic: str, partition: int) -> None:
        """A transactional message of long ago, whether or not the partition was added."""
        records = batch(
            [Rec(b"hanging", timestamp=LONG_AGO_MS)],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
        )
        known = find_topic(self.client, topic)
        request = produce_request(known, records, PRODUCE_VERSION, partition=partition)
        request.transactional_id = self.name
        [found] = self.client.call(request, PRODUCE_VERSION).responses
        assert found.partition_responses[0].error_code == 0


@pytest.fixture
def raw(txn_node: BrokerProcess, name: str) -> Iterator[Raw]:
    made = Raw(txn_node, name)
    yield made
    made.client.close()


def hanging(run: Run, topic: str, *more: str) -> list[tuple[int, int, str]]:
    """Partition, start offset and reason of what hangs in a topic."""
    found = run("txn", "list", "--hanging", "--topic", topic, "--format", "json", *more).json()
    return [(row["partition"], row["start_offset"], row["why"]) for row in found]


def test_an_open_transaction_is_listed_and_described(
    run: Run, txn_node: BrokerProcess, two: str, name: str
) -> None:
    with open_transaction(txn_node, name, two):
        [row] = [
            r
            for r in run("txn", "list", "--format", "json").json()
            if r["transactional_id"] == name
        ]
        assert row["state"] == "Ongoing"
        assert row["coordinator"] == 1
        text = run("txn", "list").out.splitlines()
        assert text[0].split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "ID", "STATE"]
        assert [name, "1", str(row["producer_id"]), "Ongoing"] in [line.split() for line in text]
        [described] = run("txn", "describe", name, "--format", "json").json()
        assert described.pop("start").endswith("Z")
        assert 0 <= described.pop("age_ms") < 60_000
        assert described == {
            "transactional_id": name,
            "state": "Ongoing",
            "producer_id": row["producer_id"],
            "producer_epoch": 0,
            "timeout_ms": 60_000,
            "partitions": [{"topic": two, "partition": 0}],
        }
        text = run("txn", "describe", name).out
        assert text.startswith(f"transactional id {name}\nstate           Ongoing\n")
        assert f"\npartitions      {two}-0\n" in text


def test_list_filters(run: Run, txn_node: BrokerProcess, two: str, name: str) -> None:
    def ids(*filters: str) -> set[str]:
        return {
            r["transactional_id"] for r in run("txn", "list", *filters, "--format", "json").json()
        }

    with open_transaction(txn_node, name, two):
        producer_id = str(run("txn", "describe", name, "--format", "json").json()[0]["producer_id"])
        assert name in ids("--state", "ongoing", "--state", "Empty")
        assert name not in ids("--state", "Empty")
        assert ids("--producer-id", producer_id) == {name}
        assert name in ids("--longer-than", "0ms")
        assert name not in ids("--longer-than", "1h")
        assert ids("--id-pattern", f"{name[:3]}.*{name[-2:]}") >= {name}
        assert ids("--id-pattern", name[:-1]) == set()
    ended = run("txn", "list", "--longer-than", "1d")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "no transaction is like that: see all with `penstock txn list`\n"
    ended = run("txn", "list", "--id-pattern", "(")
    assert "INVALID_REGULAR_EXPRESSION" in ended.sentence


def test_abort_by_id_fences_the_producer(
    run: Run, txn_node: BrokerProcess, two: str, name: str
) -> None:
    with open_transaction(txn_node, name, two) as client:
        before = run("txn", "describe", name, "--format", "json").json()[0]
        ended = run("txn", "abort", name, "--yes", "--format", "json").json()
        assert ended.pop("producer_epoch") > before["producer_epoch"]
        assert ended == {
            "transactional_id": name,
            "aborted": True,
            "producer_id": before["producer_id"],
        }
        with pytest.raises(KafkaException) as refused:
            client.commit_transaction(30)
        assert refused.value.args[0].fatal(), refused.value
    committed = producer(txn_node)
    committed.produce(two, b"after", partition=0)
    committed.flush(30)
    [seen] = read(txn_node, two, 1, isolation_level="read_committed")
    assert seen.value() == b"after", "the aborted message is skipped"
    again = run("txn", "abort", name, "--yes").sentence
    assert again == (
        f"'{name}' has no transaction that could be aborted, it is in state Empty:"
        f" see `penstock txn describe {name}`"
    )


def test_a_transaction_of_a_forgotten_producer_hangs(
    run: Run, txn_node: BrokerProcess, two: str, raw: Raw
) -> None:
    raw.write(two, 1)
    assert hanging(run, two) == [(1, 0, "no coordinator knows its producer")]
    assert hanging(run, two, "--producer-id", "4243") == []
    assert hanging(run, f"{two}:0") == []
    assert hanging(run, two, "--longer-than", "5000w") == []
    text = run("txn", "list", "--hanging", "--topic", two).out.splitlines()
    assert "2023-11-14T22:13:20.000Z" in text[1]
    at = ("--topic", two, "--partition", "1")
    wrong = run("txn", "abort", *at, "--start-offset", "7", "--yes").sentence
    assert wrong == (
        f"{two}-1 has no such open transaction: those open begin at 0;"
        " see `penstock txn list --hanging`"
    )
    ended = run("txn", "abort", *at, "--start-offset", "0", "--yes")
    assert (ended.code, ended.out) == (0, f"aborted the transaction at offset 0 of {two}-1\n")
    assert hanging(run, two) == []
    none = run("txn", "abort", *at, "--producer-id", "4242", "--yes").sentence
    assert "none is open there" in none
    committed = producer(txn_node)
    committed.produce(two, b"after", partition=1)
    committed.flush(30)
    [seen] = read(txn_node, two, 1, partition=1, isolation_level="read_committed")
    assert seen.value() == b"after", "readers are not held back any more"


def test_a_partition_outside_the_transaction_hangs(run: Run, two: str, raw: Raw, name: str) -> None:
    raw.init()
    raw.add(two, 0)
    raw.write(two, 0)
    raw.write(two, 1)
    assert hanging(run, two) == [(1, 0, f"the transaction of {name} does not have the partition")]
    torn = run("txn", "abort", "--topic", two, "--partition", "0", "--start-offset", "0", "--yes")
    assert torn.sentence == (
        f"the transaction at offset 0 of {two}-0 does not hang: it is {name}'s, and to end it here"
        f" alone would tear it; abort all of it with `penstock txn abort {name}`"
    )
    at = ("--topic", two, "--partition", "1", "--producer-id", str(raw.producer_id))
    ended = run("txn", "abort", *at, "--producer-epoch", "0", "--yes", "--format", "json").json()
    assert (ended["aborted"], ended["start_offset"]) == (True, 0)
    assert hanging(run, two) == []


def test_a_transaction_that_its_coordinator_has_left_behind_hangs(
    run: Run, two: str, raw: Raw, name: str
) -> None:
    raw.init()
    raw.write(two, 0)
    raw.init()
    raw.add(two, 0)
    assert hanging(run, two) == [(0, 0, f"it is older than the transaction of {name}")]
    at = ("--topic", two, "--partition", "0", "--start-offset", "0")
    assert run("txn", "abort", *at, "--yes").code == 0
    assert hanging(run, two) == []


def test_what_is_unknown_is_said_to_be(
    run: Run, txn_node: BrokerProcess, two: str, name: str
) -> None:
    with open_transaction(txn_node, name, two):
        sentence = run("txn", "describe", f"{name}x").sentence
    assert sentence.startswith(f"no coordinator knows the transactional id '{name}x' (did you mean")
    assert run("txn", "describe", "nobody-at-all").sentence.endswith(
        "see `penstock txn list --hanging`"
    )
    at = ("--topic", "no-such-topic", "--partition", "0", "--start-offset", "0")
    assert run("txn", "abort", *at, "--yes").sentence == (
        "topic 'no-such-topic' does not exist: see `penstock topic list`"
    )


@pytest.mark.parametrize(
    ("args", "start"),
    [
        (("abort", "some-id"), "aborting the transaction of some-id needs a yes"),
        (("abort",), "which transaction is meant? name either the ID of a transaction, or --topic"),
        (("abort", "a", "--topic", "t"), "that is two transactions: name either the ID"),
        (("abort", "--topic", "t", "--partition", "0"), "which transaction is meant?"),
        (
            ("list", "--longer-than", "soon"),
            "'soon' is not a length of time: write it as 500ms, 90s",
        ),
        (("list", "--topic", "t"), "--topic goes with --hanging"),
        (("list", "--hanging", "--state", "Empty"), "--state and --id-pattern are about"),
    ],
)
def test_a_wrong_command_line(run_at: Run, args: tuple[str, ...], start: str) -> None:
    ended = run_at("127.0.0.1:1", "txn", *args)
    assert ended.code == 2
    assert ended.sentence.startswith(start)
