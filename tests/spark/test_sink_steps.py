"""A query that dies at every step of its way, without Spark: tasks and the driver's commit are run
as Spark runs them, against a real node.

A step is a request. The query dies before it is sent, or when it was sent and its answer is not
read. Then it is started again as Spark does: the batch that is not known to be committed is
repeated as a whole. Each row must be there once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.kafka.brokers import Brokers
from penstock.kafka.client import parse_addresses
from penstock.kafka.connection import Connection
from penstock.spark import writer
from penstock.spark.errors import SparkError
from penstock.spark.producer import Fenced
from penstock.spark.sink import SinkOptions
from penstock.spark.transactions import Written, read_marker
from penstock.spark.writer import Handed, Work, abort_all, commit_all
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import RawClient
from support.spark_sink import chunk, options_for, run_task, values
from support.waiting import eventually

TASKS, BATCHES, ROWS = 2, 2, 3


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
def die_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bool], None]:
    """Lets the n-th request from now on be the last thing that happens, sent or not."""
    left: list[Any] = [None, False]
    send = Connection.send

    def counted(self: Connection, *args: Any) -> None:
        left[0] = None if left[0] is None else left[0] - 1
        if left[0] == 0 and not left[1]:
            left[0] = None
            raise Died
        send(self, *args)
        if left[0] == 0:
            left[0] = None
            raise Died

    monkeypatch.setattr(Connection, "send", counted)

    def arm(step: int, sent: bool) -> None:
        left[:] = [step, sent]

    return arm


def row(query: str, batch: int, task: int, number: int) -> bytes:
    return f"{query} {batch} {task} {number}".encode()


def expected(query: str) -> set[bytes]:
    numbers = itertools.product(range(BATCHES), range(TASKS), range(ROWS))
    return {row(query, *at) for at in numbers}


class Query:
    """What Spark does with a query: batches in order, each repeated until it is known committed."""

    def __init__(self, options: SinkOptions, name: str, *, aborts: bool = False) -> None:
        self.options = options
        self.name = name
        self.aborts = aborts
        self.done = 0

    def run(self) -> None:
        while self.done < BATCHES:
            self.one_batch(self.done)
            self.done += 1

    def one_batch(self, batch: int) -> None:
        messages: list[Handed] = []
        try:
            for task in range(TASKS):
                rows = [row(self.name, batch, task, number) for number in range(ROWS)]
                work = Work(self.name, batch, task)
                messages.append(run_task(self.options, work, chunk(rows[:1]), chunk(rows[1:])))
            commit_all(self.options, messages)
        except Died:
            if self.aborts:
                abort_all(self.options, messages)
            raise


def state_of(node: BrokerProcess, handed: Handed) -> str:
    """What the coordinator says of a task's transaction."""
    assert handed.prepared is not None
    request = DescribeTransactionsRequest(
        transactional_ids=[handed.prepared.identity.transactional_id or ""]
    )
    with RawClient(node.host, node.port) as client:
        [state] = client.call(request, 0).transaction_states
    return str(state.transaction_state)


def steps() -> Iterator[int]:
    return itertools.count(1)


@pytest.mark.parametrize("aborts", [False, True], ids=["killed", "aborted"])
@pytest.mark.parametrize("sent", [False, True], ids=["unsent", "sent"])
def test_a_query_that_dies_at_any_step_writes_each_row_once(
    node: BrokerProcess,
    topic: TopicMaker,
    die_at: Callable[[int, bool], None],
    sent: bool,
    aborts: bool,
) -> None:
    name = topic(partitions=2)
    options = options_for(node, topic=name)
    wanted: set[bytes] = set()
    for step in steps():
        query = Query(options, f"q{sent}{aborts}{step}", aborts=aborts)
        wanted |= expected(query.name)
        die_at(step, sent)
        try:
            query.run()
        except Died:
            query.run()
        else:
            break
    die_at(0, False)
    assert step > 2 * BATCHES * TASKS
    found = values(node, name)
    assert set(found) == wanted
    assert set(found.values()) == {1}


def test_a_batch_whose_commit_is_not_known_to_spark_is_not_written_again(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, topic=name)
    query = Query(options, "forgotten")
    query.one_batch(0)
    query.one_batch(0)
    query.run()
    assert values(node, name) == dict.fromkeys(expected("forgotten"), 1)


def test_commit_may_be_repeated_even_after_the_id_has_a_new_owner(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, topic=name)
    first = run_task(options, Work("again", 0, 0), chunk([b"a"]))
    commit_all(options, [first])
    commit_all(options, [first])
    second = run_task(options, Work("again", 1, 0), chunk([b"b"]))
    commit_all(options, [first])  # its epoch is no longer the producer's
    commit_all(options, [second])
    assert values(node, name) == {b"a": 1, b"b": 1}


def test_what_was_committed_survives_an_abort_that_comes_late(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, topic=name)
    handed = run_task(options, Work("late", 0, 0), chunk([b"a"]))
    commit_all(options, [handed])
    abort_all(options, [handed])
    assert values(node, name) == {b"a": 1}


def test_of_two_attempts_of_a_task_the_later_one_counts(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, topic=name)
    work = Work("speculative", 0, 0)
    slow = run_task(options, work, chunk([b"a"]))
    quick = run_task(options, work, chunk([b"a"]))
    with pytest.raises(Fenced, match=r"spark\.speculation"):
        commit_all(options, [slow])
    commit_all(options, [quick])
    commit_all(options, [slow])  # the marker says that its rows are there
    assert values(node, name) == {b"a": 1}


def test_a_zombie_cannot_write_into_its_successors_transaction(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, topic=name)
    work = Work("zombie", 0, 0)
    taken_over: list[Handed] = []

    def rows() -> Iterator[Any]:
        yield chunk([b"a"])
        taken_over.append(run_task(options, work, chunk([b"a"]), chunk([b"b"])))
        yield chunk([b"b"])

    with pytest.raises(Fenced):
        writer.Task(options, work).run(rows())
    commit_all(options, taken_over)
    assert values(node, name) == {b"a": 1, b"b": 1}


def test_a_replay_with_other_rows_is_refused(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    options = options_for(node, topic=name)
    commit_all(options, [run_task(options, Work("other", 0, 0), chunk([b"a", b"b"]))])
    with pytest.raises(SparkError, match="committed with 2 rows of 2 bytes"):
        run_task(options, Work("other", 0, 0), chunk([b"a"]))
    assert values(node, name) == {b"a": 1, b"b": 1}


def test_a_checkpoint_older_than_the_topic_is_refused(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    options = options_for(node, topic=topic())
    commit_all(options, [run_task(options, Work("old", 5, 0), chunk([b"a"]))])
    with pytest.raises(SparkError, match="batch 4 of old comes after batch 5 was committed"):
        run_task(options, Work("old", 4, 0), chunk([b"a"]))


def test_the_marker_says_what_was_written(node: BrokerProcess, topic: TopicMaker) -> None:
    options = options_for(node, topic=topic())
    handed = run_task(options, Work("marked", 7, 3), chunk([b"abc", None], key=[b"k", None]))
    name = options.transactional_id("marked", 3)
    with Brokers(parse_addresses(node.bootstrap), 20) as brokers:
        commit_all(options, [handed])
        assert read_marker(brokers, name) == (7, Written(rows=2, bytes=4))


def test_at_least_once_repeats_and_commits_nothing(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    options = options_for(node, topic=name, delivery="at-least-once")
    for _ in range(2):
        handed = run_task(options, Work("plain", 0, 0), chunk([b"a"]))
        assert handed.prepared is None
        commit_all(options, [handed])
    assert values(node, name) == {b"a": 2}


def test_a_task_ends_only_when_its_last_rows_are_acknowledged(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    options = options_for(node, topic=topic(config={"max.message.bytes": "2000"}))
    with pytest.raises(SparkError, match="a row of 3000 bytes is larger than topic"):
        run_task(options, Work("last", 0, 0), chunk([b"a"]), chunk([b"b", bytes(3000)]))


def test_a_transaction_that_took_too_long_is_written_again(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, topic=name, **{"kafka.transaction.timeout.ms": "300"})
    late = run_task(options, Work("slow", 0, 0), chunk([b"a"]))
    eventually(lambda: state_of(node, late) == "CompleteAbort")
    with pytest.raises(Fenced, match=r"kafka\.transaction\.timeout\.ms"):
        commit_all(options, [late])
    commit_all(options, [run_task(options, Work("slow", 0, 0), chunk([b"a"]))])
    assert values(node, name) == {b"a": 1}
