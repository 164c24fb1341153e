"""Windowed counts and sums, against the same reckoned in plain Python, over a restart."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.ready import aggregate
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.spark_flows import run, send
from support.spark_sink import committed

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW, LATE = timedelta(minutes=1), timedelta(seconds=90)
SETTINGS = {
    "by": "value.shop",
    "sums": "value.amount, value.weight as kg",
    "time": "value.at",
    "late": "90 seconds",
    "value_schema": "shop string, amount long, weight double, at timestamp",
}
Totals = dict[tuple[datetime, str | None], tuple[int, int | None, float | None]]


def shown(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def made(chance: random.Random, count: int, seconds: tuple[int, int]) -> list[dict[str, Any]]:
    rows = []
    for _ in range(count):
        at = BEGIN + timedelta(seconds=chance.randrange(*seconds))
        row: dict[str, Any] = {"shop": chance.choice(["a", "b", None]), "at": shown(at)}
        row |= {"amount": chance.choice([1, 2, 3, None]), "weight": chance.randrange(8) / 4}
        rows.append(row)
    return rows


def start_of(row: dict[str, Any]) -> datetime:
    at = datetime.fromisoformat(row["at"])
    return at.replace(second=0, microsecond=0)


def reckoned(rows: list[dict[str, Any]]) -> Totals:
    found: Totals = {}
    for row in rows:
        place = start_of(row), row["shop"]
        count, amount, kg = found.get(place, (0, None, 0.0))
        if row["amount"] is not None:
            amount = (amount or 0) + row["amount"]
        found[place] = count + 1, amount, (kg or 0.0) + row["weight"]
    return found


def last_rows(node: BrokerProcess, topic: str) -> Totals:
    """What stands for each key: of a key's rows, the last one."""
    found: Totals = {}
    for message in committed(node, topic):
        key, row = json.loads(message.key() or b""), json.loads(message.value() or b"")
        start = datetime.fromisoformat(row["start"])
        assert key == {name: row[name] for name in ("start", "shop") if name in row}
        assert datetime.fromisoformat(row["end"]) == start + WINDOW
        total = row["count"], row.get("sum_amount"), row.get("sum_kg")
        found[start, row.get("shop")] = total
    return found


def test_counts_and_sums_over_a_restart(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target, table = topic(partitions=2), topic(), tmp_path / "table"
    places = {"topic": source, "to": target, "table": str(table)}
    settings = {**SETTINGS, **places, "checkpoint": str(tmp_path / "checkpoint")}
    chance = random.Random(11)
    rows = made(chance, 300, (0, 300))
    send(node, source, rows[:150], partition=0)
    send(node, source, rows[150:], partition=1)
    run(spark, node, aggregate.pipeline, **settings)
    assert last_rows(node, target) == reckoned(rows)

    # What comes after its window is over is left out, by the watermark that the first run reached.
    over = max(datetime.fromisoformat(row["at"]) for row in rows) - LATE
    more = [*made(chance, 200, (0, 600)), {"shop": "a", "amount": 1, "weight": 1.0, "at": None}]
    send(node, source, more)
    run(spark, node, aggregate.pipeline, **settings)
    timely = [row for row in more if row["at"] is not None and start_of(row) + WINDOW > over]
    assert len(timely) < len(more) - 1, "some are late"
    totals = reckoned(rows + timely)
    assert last_rows(node, target) == totals
    over = max(datetime.fromisoformat(row["at"]) for row in rows + timely) - LATE
    found = spark.read.parquet(str(table)).selectExpr(
        "unix_seconds(start) as s", "shop", "count", "sum_amount", "sum_kg"
    )
    written = Counter(tuple(row) for row in found.collect())
    assert written == Counter(
        (int(start.timestamp()), shop, *total)
        for (start, shop), total in totals.items()
        if start + WINDOW <= over
    )


def test_a_batch_that_spark_repeats_is_written_once(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    """As after a crash between the sink's commit and Spark's own note of it."""
    source, target = topic(), topic(partitions=2)
    settings = {**SETTINGS, "topic": source, "to": target, "checkpoint": str(tmp_path)}
    rows = made(random.Random(3), 20, (0, 50))
    send(node, source, rows)
    run(spark, node, aggregate.pipeline, **settings)
    # As old as what was there, so that no batch follows which only moves the watermark.
    send(node, source, rows[:5])
    run(spark, node, aggregate.pipeline, **settings)
    before = len(committed(node, target))
    commits = tmp_path / "topic" / "commits"
    last = max((f for f in commits.iterdir() if f.name.isdecimal()), key=lambda f: int(f.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink()
    run(spark, node, aggregate.pipeline, **settings)
    assert last.exists(), "it was repeated"
    assert len(committed(node, target)) == before
    assert last_rows(node, target) == reckoned(rows + rows[:5])


def test_final_rows_of_windows_that_overlap(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    for second in (0, 40, 70):
        at = 1_700_000_040_000 + second * 1000  # on a full minute
        send(node, source, [b"x", None], key=b"k", timestamp=at)
    send(node, source, [b"x"], timestamp=1_700_001_000_000)
    run(
        spark,
        node,
        aggregate.pipeline,
        topic=source,
        to=target,
        checkpoint=str(tmp_path),
        window="1 minute",
        slide="30 seconds",
        late="10 seconds",
        final=True,
        value_format="raw",
    )
    begin = datetime.fromtimestamp(1_700_000_040, UTC)
    wanted = {-30: 2, 0: 4, 30: 4, 60: 2}
    rows = [json.loads(m.value() or b"") for m in committed(node, target)]
    assert Counter((row["start"], row["key"], row["count"]) for row in rows) == Counter(
        (shown(begin + timedelta(seconds=s)), "k", count) for s, count in wanted.items()
    )
