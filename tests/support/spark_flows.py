"""Ready pipelines as the runner runs them, and what their topics show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from .helpers import produce_all, producer
from .spark_sink import committed
from .spark_source import STARTS_MAX, Brokers, was_late
from .waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_S_MAX = 300.0
Pipeline = Callable[..., Any]


def start(spark: SparkSession, node: Brokers, pipeline: Pipeline, **settings: Any) -> None:
    """Starts the queries of a pipeline."""
    pipeline(spark, **settings, **{"kafka.bootstrap.servers": node.bootstrap})


def run(spark: SparkSession, node: Brokers, pipeline: Pipeline, **settings: Any) -> None:
    """Runs a pipeline over all that is there; raises what one of its queries failed with."""
    to_end(spark, lambda: start(spark, node, pipeline, once=True, **settings))


def to_end(spark: SparkSession, start_queries: Callable[[], None]) -> None:
    """Starts queries and waits for their end, again if a Python process of Spark's was late
    (`spark_source.run_to_end`).
    """
    for left in reversed(range(STARTS_MAX)):
        spark.streams.resetTerminated()
        start_queries()
        eventually(lambda: not spark.streams.active, RUN_S_MAX)
        try:
            spark.streams.awaitAnyTermination(1)
        except StreamingQueryException as e:
            if not left or not was_late(e):
                raise
        else:
            return


def stop_all(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()


def send(node: Brokers, topic: str, values: Iterable[Any], **more: Any) -> None:
    """Publishes values: bytes and None as they are, anything else as JSON."""
    messages: list[Mapping[str, Any]] = [
        {"value": v if v is None or isinstance(v, bytes) else json.dumps(v), **more} for v in values
    ]
    produce_all(producer(node), topic, messages)


def objects(node: Any, topic: str) -> list[Any]:
    """The JSON values that a topic shows to readers of committed data."""
    return [json.loads(message.value() or b"null") for message in committed(node, topic)]
