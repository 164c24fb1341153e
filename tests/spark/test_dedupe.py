"""A topic without duplicates, over a restart, with nulls, and with what is too late."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.ready import dedupe
from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.spark_flows import run, send
from support.spark_sink import committed, values

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_by_columns_over_a_restart(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(partitions=2), topic()
    settings = {"topic": source, "to": target, "checkpoint": str(tmp_path), "by": "value.id"}
    settings |= {"value_format": "json", "value_schema": "id int, at timestamp", "time": "value.at"}
    settings |= {"within": "10 minutes"}
    chance = random.Random(7)
    first_of: dict[int | None, int] = {}
    alone = 0
    serial = 0

    def publish(count: int) -> None:
        nonlocal alone, serial
        rows = []
        for _ in range(count):
            found = chance.choice([*range(40), None])
            row = {"id": found, "at": f"2026-01-01T00:0{chance.randrange(10)}:00Z", "n": serial}
            rows.append(row)
            alone += found is None
            first_of.setdefault(found, serial)
            serial += 1
        send(node, source, rows, key=b"k", headers=[("h", b"1")], partition=0)

    publish(100)
    run(spark, node, dedupe.pipeline, **settings)
    publish(100)
    send(node, source, [{"id": 1000, "at": "2025-12-31T23:00:00Z", "n": -1}], partition=1)
    run(spark, node, dedupe.pipeline, **settings)
    found = [json.loads(m.value() or b"") for m in committed(node, target)]
    ids = Counter(row["id"] for row in found)
    assert ids == Counter({id_: 1 for id_ in first_of if id_ is not None} | {None: alone}), (
        "each once, rows without an id all, and what is too late not at all"
    )
    kept = {row["id"]: row["n"] for row in found if row["id"] is not None}
    assert kept == {id_: n for id_, n in first_of.items() if id_ is not None}
    assert all((m.key(), m.headers()) == (b"k", [("h", b"1")]) for m in committed(node, target))


def test_by_whole_values(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(), topic()
    rows: list[Any] = [{"value": v} for v in (b"a", b"b", b"a", b"\xff", b"\xff", b"", None, None)]
    produce_all(producer(node), source, rows)
    run(spark, node, dedupe.pipeline, topic=source, to=target, checkpoint=str(tmp_path))
    assert values(node, target) == {b"a": 1, b"b": 1, b"\xff": 1, b"": 3}, "b'' and two nulls"
