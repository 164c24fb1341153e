"""Topics joined with topics and tables, against the same reckoned in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.ready import join
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.spark_flows import RUN_S_MAX, objects, run, send, start, stop_all
from support.waiting import eventually

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def made(chance: random.Random, count: int, seconds: tuple[int, int]) -> list[Row]:
    rows = []
    for n in range(count):
        at = BEGIN + timedelta(seconds=chance.randrange(*seconds))
        rows.append({"id": chance.choice([*range(30), None]), "at": at.isoformat(), "n": n})
    return rows


def meet(one: Row, other: Row) -> bool:
    apart = datetime.fromisoformat(one["at"]) - datetime.fromisoformat(other["at"])
    return one["id"] is not None and one["id"] == other["id"] and abs(apart.total_seconds()) <= 60


def test_two_topics_over_a_restart(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    orders, payments, target = topic(partitions=2), topic(), topic()
    settings = {
        "topic": orders,
        "other": payments,
        "to": target,
        "on": "this.value.id = other.value.id",
        "within": "60 seconds",
        "late": "5 minutes",
        "how": "left",
        "time": "value.at",
        "other_time": "value.at",
        "value_schema": "id int, at timestamp, n int",
        "other_schema": "id int, at timestamp, n int",
        "columns": "this.value.n as this, other.value.n as other",
        "checkpoint": str(tmp_path),
    }
    chance = random.Random(5)
    left, right = made(chance, 60, (0, 200)), made(chance, 30, (0, 200))
    timeless = {"id": 5, "at": None, "n": 600}
    send(node, orders, [*left, timeless], partition=1)
    send(node, payments, right)
    run(spark, node, join.pipeline, **settings)
    pairs = Counter((a["n"], b["n"]) for a in left for b in right if meet(a, b))
    assert Counter((row["this"], row.get("other")) for row in objects(node, target)) == pairs

    # What was read before the restart meets what comes now; long after it, the rest is alone.
    later = [{**row, "n": row["n"] + 100} for row in made(chance, 30, (0, 200))]
    end: Row = {"id": 999, "at": (BEGIN + timedelta(days=36_500)).isoformat()}
    send(node, payments, [*later, {**end, "n": 888}])
    send(node, orders, [{**end, "n": 999}])
    run(spark, node, join.pipeline, **settings)
    everything = [*right, *later]
    pairs = Counter((a["n"], b["n"]) for a in left for b in everything if meet(a, b))
    pairs += Counter([(999, 888), (timeless["n"], None)])
    alone = [a for a in left if not any(meet(a, b) for b in everything)]
    pairs += Counter((a["n"], None) for a in alone)
    assert Counter((row["this"], row.get("other")) for row in objects(node, target)) == pairs
    assert alone


def test_a_table_and_one_that_is_read_anew(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    table = str(tmp_path / "table")
    settings: dict[str, Any] = {
        "topic": source,
        "to": target,
        "table": table,
        "on": "this.value.id = other.value.id",
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    spark.range(0, 10, 1, 1).selectExpr("id", "concat('name ', id) as name").write.parquet(table)
    send(node, source, [{"id": n % 20} for n in range(40)], key=b"k")
    run(spark, node, join.pipeline, **settings)
    wanted = [{"this": {"id": n}, "other": {"id": n, "name": f"name {n}"}} for n in range(10)] * 2
    assert sorted(objects(node, target), key=str) == sorted(wanted, key=str)

    live, anew = topic(), str(tmp_path / "anew")
    settings |= {"to": live, "checkpoint": anew, "reread": True, "trigger": "0 seconds"}
    settings |= {"how": "left", "columns": "this.value.id, other.value.name", "start": "latest"}
    try:
        start(spark, node, join.pipeline, **settings)
        eventually(lambda: Path(anew, "commits", "0").exists(), RUN_S_MAX)
        send(node, source, [{"id": 15}])
        eventually(lambda: len(objects(node, live)) == 1, RUN_S_MAX)
        frame = spark.range(15, 16, 1, 1).selectExpr("id", "'new' as name")
        frame.write.mode("append").parquet(table)
        send(node, source, [{"id": 15}])
        eventually(lambda: len(objects(node, live)) == 2, RUN_S_MAX)
    finally:
        stop_all(spark)
    assert objects(node, live) == [{"id": 15}, {"id": 15, "name": "new"}]
