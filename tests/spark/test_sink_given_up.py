"""A job that fails is aborted while some of its tasks have yet to begin: what such a straggler does
then, without Spark, against a real node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spark.errors import SparkError
from penstock.spark.producer import Fenced
from penstock.spark.writer import BatchWriter
from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.spark_sink import chunk, options_for, values

KINDS = pytest.mark.parametrize("named", [False, True], ids=["by chance", "txnAppId"])


def options_of(name: str, *, named: bool) -> dict[str, str]:
    return {"topic": name} | ({"txnAppId": f"job-{name}", "txnVersion": "1"} if named else {})


@KINDS
def test_a_task_that_begins_after_the_abort_leaves_nothing_open(
    node: BrokerProcess, topic: TopicMaker, named: bool
) -> None:
    name = topic()
    options = options_for(node, **options_of(name, named=named))
    job = BatchWriter(options)
    job.abort([None, None])
    with pytest.raises(SparkError, match="begins after its job was given up"):
        job.task(0).run(iter([chunk([b"late"])]))
    produce_all(producer(node), name, [{"value": b"after"}])
    assert values(node, name) == {b"after": 1}, "nothing that is open holds it back"


@KINDS
def test_a_task_that_had_begun_is_fenced(
    node: BrokerProcess, topic: TopicMaker, named: bool
) -> None:
    name = topic()
    job = BatchWriter(options_for(node, **options_of(name, named=named)))

    def rows() -> Iterator[Any]:
        yield chunk([b"before"])
        job.abort([None])
        yield chunk([b"late"])

    with pytest.raises(Fenced):
        job.task(0).run(rows())
    produce_all(producer(node), name, [{"value": b"after"}])
    assert values(node, name) == {b"after": 1}


def test_the_next_job_of_the_same_name_is_not_given_up(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = options_for(node, **options_of(name, named=True))
    BatchWriter(options).abort([None])
    again = BatchWriter(options)
    again.commit([again.task(0).run(iter([chunk([b"a"])]))])
    assert values(node, name) == {b"a": 1}


def test_an_abort_at_least_once_begins_nothing(node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic()
    job = BatchWriter(options_for(node, topic=name, delivery="at-least-once"))
    job.abort([None])
    job.task(0).run(iter([chunk([b"a"])]))
    assert values(node, name) == {b"a": 1}
