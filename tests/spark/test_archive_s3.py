"""The pipelines archive, audit and replay with a table on S3; no jar is needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.lake.compact import Policy, compact
from penstock.spark.lake.rows import read
from penstock.spark.lake.table import open_table
from penstock.spark.ready import archive, audit, replay
from support.helpers import TopicMaker
from support.object_store import BUCKET, s3_server, use
from support.process import BrokerProcess
from support.spark_flows import run
from support.spark_lake import fill_mixed, records_of_rows, records_of_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers

AT_ONCE = Policy(quiet_s=-60.0, small_files_max=1)
TIMES = {"since": "2026-11-16T05:00", "until": "2026-11-16T07:00"}


def test_a_table_on_s3(
    spark: SparkSession,
    node: BrokerProcess,
    topic: TopicMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, copy = topic(partitions=2), topic(partitions=2)
    place = f"s3://{BUCKET}/lake/{source}"
    kafka = {"kafka.bootstrap.servers": node.bootstrap}
    settings = {"topic": [source], "to": place, "checkpoint": str(tmp_path)}
    with s3_server() as environment, monkeypatch.context() as patch:
        use(environment, patch)
        for name, value in environment.items():  # the workers have the environment of their JVM
            patch.setitem(spark.sparkContext.environment, name, value)
        for first in (0, 12):
            fill_mixed(node, source, 12, first=first)
            run(spark, node, archive.pipeline, table_format="delta", **settings)
        table = open_table(place)
        wanted = records_of_topic(node, source)
        assert records_of_rows(read(spark, table, table.load())) == wanted
        before = len(table.load().files)
        assert compact(spark, table, AT_ONCE) == before
        assert len(table.load().files) < before
        assert records_of_rows(read(spark, table, table.load())) == wanted
        assert audit.pipeline(spark, topic=source, archive=place, **kafka) == 0
        replay.pipeline(spark, archive=place, to=copy, **TIMES, **kafka)
    assert [r[2:5] for r in records_of_topic(node, copy)] == [r[2:5] for r in wanted]
