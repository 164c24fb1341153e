"""Pipelines one after the other: records keep their times, so windows and joins are right."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.ready import aggregate, dedupe, join
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.spark_flows import objects, run, send
from support.spark_sink import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers

AT_MS = int(datetime(2026, 1, 31, 10, 0, 30, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000


def test_windows_behind_a_join_behind_a_dedupe(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    orders, distinct, payments, paid, totals = (topic() for _ in range(5))
    for minute in range(3):
        at_ms = AT_MS + minute * MINUTE_MS
        send(node, orders, [{"id": minute, "amount": 2}] * 2, timestamp=at_ms)
        send(node, payments, [{"id": minute}], timestamp=at_ms + 1)

    def flow(pipeline: Any, name: str, **settings: Any) -> None:
        run(spark, node, pipeline, checkpoint=str(tmp_path / name), **settings)

    schema = {"value_schema": "id int, amount int"}
    flow(dedupe.pipeline, "dedupe", topic=orders, to=distinct)
    times = sorted(m.timestamp()[1] - AT_MS for m in committed(node, distinct))
    assert times == [0, 60_000, 120_000]
    flow(
        join.pipeline,
        "join",
        topic=distinct,
        other=payments,
        to=paid,
        on="this.value.id = other.value.id",
        within="1 second",
        other_schema="id int",
        columns="this.value.id, this.value.amount",
        **schema,
    )
    times = sorted(m.timestamp()[1] - AT_MS for m in committed(node, paid))
    assert times == [1, 60_001, 120_001], "of the younger one of each two"
    flow(
        aggregate.pipeline,
        "totals",
        topic=paid,
        to=totals,
        by="1 as all",
        late="0 seconds",
        **schema,
    )
    found = {row["start"]: row["count"] for row in objects(node, totals)}
    assert found == {f"2026-01-31T10:0{minute}:00.000Z": 1 for minute in range(3)}
    assert sorted(m.timestamp()[1] - AT_MS for m in committed(node, totals)) == times
