"""Apache's `kafka-transactions` against a node: open transactions are shown, hanging ones ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from support.batches import batch
from support.calls import find_topic, produce_request
from support.helpers import QUIET, make_topic, read
from support.process import BrokerProcess
from support.raw import RawClient
from support.tools import Done, Tools
from support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

CALL_SECONDS = 30.0
TRANSACTIONAL = 0x10
PRODUCE_VERSION = 11
NOBODY = 4711  # a producer that no coordinator knows of


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


@pytest.fixture
def unverified(fresh_node: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A node on which transactions can hang, as they could before leaders asked coordinators."""
    return fresh_node(settings={"transaction.partition.verification.enable": "false"})


class Console:
    def __init__(self, tools: Tools, broker: BrokerProcess) -> None:
        self._tools = tools
        self._bootstrap = broker.bootstrap

    def try_(self, *args: str) -> Done:
        return self._tools.run("transactions", "--bootstrap-server", self._bootstrap, *args)

    def rows(self, *args: str) -> list[dict[str, str]]:
        """The table that a command prints, by column."""
        done = self.try_(*args)
        assert done.code == 0, done
        head, *lines = [
            [cell.strip() for cell in line.split("\t")] for line in done.out.splitlines() if line
        ]
        return [dict(zip(head, line, strict=True)) for line in lines]


def test_a_transaction_is_listed_and_described(node: BrokerProcess, tools: Tools) -> None:
    name = make_topic(node, "of-the-transactions-tool", partitions=2)
    console = Console(tools, node)
    client = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "tool-a", **QUIET})
    client.init_transactions(CALL_SECONDS)
    client.begin_transaction()
    client.produce(name, "v", partition=1)
    assert client.flush(CALL_SECONDS) == 0

    [listed] = console.rows("list", "--transactional-id-pattern", "tool-.*")
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("tool-a", "Ongoing")
    # Others' ids in which nothing was ever begun count as open for ever.
    slow = console.rows("list", "--duration-filter", "3600000")
    assert "tool-a" not in {row["TransactionalId"] for row in slow}
    [shown] = console.rows("describe", "--transactional-id", "tool-a")
    assert (shown["TransactionState"], shown["TopicPartitions"]) == ("Ongoing", f"{name}-1")
    assert (shown["CoordinatorId"], shown["ProducerEpoch"]) == ("1", "0")
    [producer] = console.rows("describe-producers", "--topic", name, "--partition", "1")
    assert producer["ProducerId"] == shown["ProducerId"]
    assert producer["CurrentTransactionStartOffset"] == "0"
    assert console.rows("find-hanging", "--topic", name) == []

    client.commit_transaction(CALL_SECONDS)

    def over() -> bool:
        [shown] = console.rows("describe", "--transactional-id", "tool-a")
        return (shown["TransactionState"], shown["TopicPartitions"]) == ("CompleteCommit", "")

    eventually(over, CALL_SECONDS)
    [producer] = console.rows("describe-producers", "--topic", name, "--partition", "1")
    assert producer["CurrentTransactionStartOffset"] == "None"
    missing = console.try_("describe", "--transactional-id", "tool-nobody")
    assert missing.code == 1
    assert "could not be found" in missing.err


def test_a_hanging_transaction_is_found_and_aborted(
    unverified: BrokerProcess, tools: Tools
) -> None:
    name = make_topic(unverified, "t")
    console = Console(tools, unverified)
    with RawClient(unverified.host, unverified.port) as client:
        topic = find_topic(client, name)
        lost = batch(
            [b"lost"],
            attributes=TRANSACTIONAL,
            producer_id=NOBODY,
            producer_epoch=3,
            base_sequence=0,
        )
        request = produce_request(topic, lost, PRODUCE_VERSION)
        request.transactional_id = "gone"
        answer = client.call(request, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
        client.call(produce_request(topic, batch([b"kept"]), PRODUCE_VERSION), PRODUCE_VERSION)

    [hanging] = console.rows("find-hanging", "--topic", name)
    assert (hanging["ProducerId"], hanging["StartOffset"]) == (str(NOBODY), "0")
    assert console.rows("find-hanging", "--broker-id", "1") == [hanging]
    done = console.try_("abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    assert done.code == 0, done
    assert console.rows("find-hanging", "--topic", name) == []
    [message] = read(unverified, name, 1, isolation_level="read_committed")
    assert message.value() == b"kept"


def test_a_transaction_is_ended_by_its_id(node: BrokerProcess, tools: Tools) -> None:
    name = make_topic(node, "of-the-terminated")
    console = Console(tools, node)
    client = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "tool-b", **QUIET})
    client.init_transactions(CALL_SECONDS)
    client.begin_transaction()
    client.produce(name, "v", partition=0)
    assert client.flush(CALL_SECONDS) == 0
    done = console.try_("forceTerminateTransaction", "--transactionalId", "tool-b")
    assert done.code == 0, done

    def ended() -> bool:
        [producer] = console.rows("describe-producers", "--topic", name, "--partition", "0")
        return producer["CurrentTransactionStartOffset"] == "None"

    eventually(ended, CALL_SECONDS)
