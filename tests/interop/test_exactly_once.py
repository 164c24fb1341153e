"""The workers of the examples about exactly-once, killed, paused and replaced in the midst of it.

The tests look at the result with clients of their own: what came out is what went in, once each,
in order for each key.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from support import postgres
from support.helpers import TopicMaker, admin, consumer, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PARTITIONS, KEYS, KILLS = 4, 8, 8
END_SECONDS_MAX = 30
Started = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(group_node: BrokerProcess) -> Iterator[Started]:
    """Starts `python examples/NAME HOST:PORT ARGS`; what still runs at the end is killed."""
    running: list[subprocess.Popen[bytes]] = []

    def started(example: str, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(EXAMPLES / example), group_node.bootstrap, *args]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


class Feed:
    """Numbers by key, published a little at a time."""

    def __init__(self, node: BrokerProcess, topic: str) -> None:
        self.topic = topic
        self.sent: dict[str, list[str]] = defaultdict(list)
        self._client = producer(node, enable_idempotence=True)
        self._count = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            key, value = f"key-{self._count % KEYS}", str(self._count)
            self._client.produce(self.topic, value, key)
            self.sent[key].append(value)
            self._count += 1
        assert self._client.flush(30) == 0


def committed(
    node: BrokerProcess, topic: str, isolation_level: str = "read_committed"
) -> dict[str, list[str]]:
    """The values of each key that a reader sees now."""
    client = consumer(node, isolation_level=isolation_level, enable_partition_eof=True)
    client.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: dict[str, list[str]] = defaultdict(list)
    ended = set()
    deadline = time.monotonic() + END_SECONDS_MAX
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, "the last stable offset does not move"
        message: Message | None = client.poll(0.5)
        if message is None:
            continue
        if message.error() is None:
            found[message.key().decode()].append(message.value().decode())
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    client.close()
    return found


def receipts_of(feed: Feed) -> dict[str, list[str]]:
    return {key: [f"receipt for {value}" for value in sent] for key, sent in feed.sent.items()}


def count(values: dict[str, list[str]]) -> int:
    return sum(map(len, values.values()))


def has_written(client: RawClient, target: str, producer_id: int) -> bool:
    """Whether the producer's open transaction has records in the topic."""
    asked = TopicRequest(name=target, partition_indexes=list(range(PARTITIONS)))
    [found] = client.call(DescribeProducersRequest(topics=[asked]), 0).topics
    return any(
        state.producer_id == producer_id and state.current_txn_start_offset >= 0
        for partition in found.partitions
        for state in partition.active_producers
    )


def signal_in_transaction(
    node: BrokerProcess,
    worker: subprocess.Popen[bytes],
    name: str,
    feed: Feed,
    number: int,
    written_to: str | None = None,
) -> None:
    """Sends a signal while the worker has a transaction open, or is about to end it; with
    `written_to`, one that has written to that topic.
    """
    request = DescribeTransactionsRequest(transactional_ids=[name])
    with RawClient(node.host, node.port) as client:

        def is_open() -> bool:
            feed.send(20)
            [found] = client.call(request, 0).transaction_states
            return bool(found.transaction_state == "Ongoing") and (
                written_to is None or has_written(client, written_to, found.producer_id)
            )

        eventually(is_open, seconds=END_SECONDS_MAX, every=0.01)
    worker.send_signal(number)


def assert_exactly_once(node: BrokerProcess, feed: Feed, target: str) -> None:
    wanted = count(feed.sent)
    eventually(lambda: count(committed(node, target)) >= wanted, seconds=END_SECONDS_MAX)
    assert committed(node, target) == receipts_of(feed)


def end(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    _, errors = worker.communicate(timeout=END_SECONDS_MAX)
    assert worker.returncode == 0, errors.decode()


@pytest.mark.timeout(300)
def test_exactly_once_while_workers_are_killed(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, start: Started
) -> None:
    source, target = group_topic(partitions=PARTITIONS), group_topic(partitions=PARTITIONS)
    feed = Feed(group_node, source)
    names = [f"{group_id}-a", f"{group_id}-b"]

    def worker(name: str) -> subprocess.Popen[bytes]:
        return start("exactly_once.py", "work", source, target, group_id, name)

    workers = {name: worker(name) for name in names}
    for i in range(KILLS):
        victim = names[i % 2]
        written_to = target if i % 4 >= 2 else None  # each of the two is struck in both ways
        signal_in_transaction(group_node, workers[victim], victim, feed, signal.SIGKILL, written_to)
        workers[victim].wait()
        workers[victim] = worker(victim)
    assert_exactly_once(group_node, feed, target)
    for process in workers.values():
        end(process)
    assert committed(group_node, target) == receipts_of(feed)
    everything = committed(group_node, target, isolation_level="read_uncommitted")
    assert count(everything) > count(feed.sent), "no kill has struck a transaction"


@pytest.mark.timeout(300)
def test_exactly_once_when_a_worker_goes_for_good(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, start: Started
) -> None:
    """The partitions go to another worker, which has another transactional id."""
    source, target = group_topic(partitions=PARTITIONS), group_topic(partitions=PARTITIONS)
    feed = Feed(group_node, source)
    first, second = (
        start("exactly_once.py", "work", source, target, group_id, f"{group_id}-{n}") for n in "ab"
    )
    feed.send(400)
    assert_exactly_once(group_node, feed, target)
    feed.send(400)
    first.kill()
    feed.send(400)
    assert_exactly_once(group_node, feed, target)
    end(second)


@pytest.mark.timeout(300)
def test_exactly_once_when_a_worker_loses_its_partitions_in_a_transaction(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, start: Started
) -> None:
    """Paused for longer than its session: the offsets of its old transaction are refused."""
    source, target = group_topic(partitions=PARTITIONS), group_topic(partitions=PARTITIONS)
    feed = Feed(group_node, source)
    names = [f"{group_id}-a", f"{group_id}-b"]
    paused, other = (
        start("exactly_once.py", "work", source, target, group_id, name) for name in names
    )
    feed.send(400)
    assert_exactly_once(group_node, feed, target)
    signal_in_transaction(group_node, paused, names[0], feed, signal.SIGSTOP)
    described = admin(group_node).describe_consumer_groups

    def one_is_left() -> bool:
        return len(described([group_id])[group_id].result(10).members) == 1

    eventually(one_is_left, seconds=END_SECONDS_MAX)
    feed.send(400)
    paused.send_signal(signal.SIGCONT)
    feed.send(400)
    assert_exactly_once(group_node, feed, target)
    eventually(lambda: not one_is_left(), seconds=END_SECONDS_MAX)
    feed.send(400)
    assert_exactly_once(group_node, feed, target)
    end(paused)
    end(other)


@pytest.mark.timeout(300)
def test_exactly_once_fences_a_zombie(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, start: Started
) -> None:
    """One that was paused, and replaced meanwhile, may not write when it comes back."""
    source, target = group_topic(partitions=PARTITIONS), group_topic(partitions=PARTITIONS)
    feed = Feed(group_node, source)
    arguments = ("exactly_once.py", "work", source, target, group_id, f"{group_id}-a")
    zombie = start(*arguments)
    feed.send(400)
    assert_exactly_once(group_node, feed, target)
    feed.send(400)
    zombie.send_signal(signal.SIGSTOP)
    successor = start(*arguments)
    assert_exactly_once(group_node, feed, target)
    zombie.send_signal(signal.SIGCONT)
    feed.send(400)
    _, errors = zombie.communicate(timeout=END_SECONDS_MAX)
    assert zombie.returncode == 1
    assert f"{group_id}-a gives up".encode() in errors
    assert_exactly_once(group_node, feed, target)
    end(successor)


def _take(worker: Any, messages: int) -> None:
    """Has the worker handle so many messages in a transaction."""
    handled = 0
    deadline = time.monotonic() + END_SECONDS_MAX
    while handled < messages:
        assert time.monotonic() < deadline, f"{handled} of {messages} messages came"
        message = worker.consumer.poll(0.1)
        if message is not None and message.error() is None:
            worker.take(message)
            handled += 1


@pytest.mark.timeout(300)
def test_exactly_once_reads_again_what_was_aborted(
    group_node: BrokerProcess,
    group_topic: TopicMaker,
    group_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = group_topic(partitions=PARTITIONS), group_topic(partitions=PARTITIONS)
    feed = Feed(group_node, source)
    monkeypatch.setattr(sys, "argv", ["exactly_once.py", group_node.bootstrap])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    worker = importlib.import_module("exactly_once").Worker(source, target, group_id, group_id)
    for _ in range(2):  # without a committed offset, and with one
        feed.send(100)
        _take(worker, 50)
        worker.abort()
        _take(worker, 100)
        worker.commit()
        assert committed(group_node, target) == receipts_of(feed)
    worker.consumer.close()


def balances(connection: Any) -> dict[str, int]:
    return dict(connection.execute("SELECT account, amount FROM balances").fetchall())


def sums_of(feed: Feed) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for key, values in feed.sent.items():
        sums[key] += sum(map(int, values))
    return dict(sums)


def count_with_kills(
    node: BrokerProcess, topic: str, group: str, start: Started, where: str, connection: Any
) -> None:
    feed = Feed(node, topic)
    names = [f"{group}-a", f"{group}-b"]

    def worker(name: str) -> subprocess.Popen[bytes]:
        return start("offsets_in_database.py", where, "work", topic, group, name)

    def counted() -> int:
        statement = "SELECT SUM(next_offset) FROM positions"
        return int(connection.execute(statement).fetchone()[0] or 0)

    workers = {name: worker(name) for name in names}
    feed.send(100)
    eventually(lambda: _there(connection) and counted() > 0, seconds=END_SECONDS_MAX)
    for i in range(4):
        before = counted()
        feed.send(500)
        eventually(lambda before=before: counted() > before, seconds=END_SECONDS_MAX)
        feed.send(100)
        victim = names[i % 2]
        workers[victim].kill()
        workers[victim].wait()
        workers[victim] = worker(victim)
    wanted = count(feed.sent)
    eventually(lambda: counted() == wanted, seconds=END_SECONDS_MAX)
    assert balances(connection) == sums_of(feed)
    for process in workers.values():
        end(process)
    assert balances(connection) == sums_of(feed)


def _there(connection: Any) -> bool:
    """Whether a worker has made the tables."""
    with contextlib.suppress(sqlite3.OperationalError, psycopg.errors.UndefinedTable):
        balances(connection)
        connection.execute("SELECT COUNT(*) FROM positions")
        return True
    return False


@pytest.mark.timeout(300)
def test_offsets_in_sqlite_while_workers_are_killed(
    group_node: BrokerProcess,
    group_topic: TopicMaker,
    group_id: str,
    start: Started,
    tmp_path: Path,
) -> None:
    where = str(tmp_path / "balances.sqlite")
    connection = sqlite3.connect(where, timeout=30, isolation_level=None)
    topic = group_topic(partitions=PARTITIONS)
    count_with_kills(group_node, topic, group_id, start, where, connection)
    connection.close()


@pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))
@pytest.mark.timeout(300)
def test_offsets_in_postgresql_while_workers_are_killed(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str, start: Started
) -> None:
    topic = group_topic(partitions=PARTITIONS)
    with postgres.postgresql() as url, psycopg.connect(url, autocommit=True) as connection:
        count_with_kills(group_node, topic, group_id, start, url, connection)


@pytest.mark.timeout(300)
def test_a_worker_that_was_overtaken_counts_nothing_twice(
    group_node: BrokerProcess,
    group_topic: TopicMaker,
    group_id: str,
    start: Started,
    tmp_path: Path,
) -> None:
    """Two workers of different groups stand for one that does not know that it was replaced."""
    where = str(tmp_path / "balances.sqlite")
    connection = sqlite3.connect(where, timeout=30, isolation_level=None)
    topic = group_topic(partitions=PARTITIONS)
    feed = Feed(group_node, topic)
    both = [
        start("offsets_in_database.py", where, "work", topic, f"{group_id}-{n}", n) for n in "ab"
    ]
    described = admin(group_node).describe_consumer_groups

    def all_at_work() -> bool:
        found = described([f"{group_id}-{n}" for n in "ab"]).values()
        members = [member for group in found for member in group.result(10).members]
        return sum(bool(m.assignment.topic_partitions) for m in members) == len(both)

    eventually(all_at_work, seconds=END_SECONDS_MAX)
    statement = "SELECT SUM(next_offset) FROM positions"
    for _ in range(20):
        feed.send(50)
        wanted = count(feed.sent)
        eventually(
            lambda wanted=wanted: connection.execute(statement).fetchone()[0] == wanted,
            seconds=END_SECONDS_MAX,
        )
    for worker in both:
        end(worker)
    assert balances(connection) == sums_of(feed)
    connection.close()
