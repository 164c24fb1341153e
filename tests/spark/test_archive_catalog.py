"""The pipelines archive, audit and replay with an Iceberg table of a REST catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog import load_catalog

from penstock.spark.errors import OptionError
from penstock.spark.lake.rows import read
from penstock.spark.lake.table import open_table
from penstock.spark.ready import archive, audit, replay
from support.helpers import TopicMaker
from support.iceberg_catalog import rest_catalog
from support.process import BrokerProcess
from support.spark_flows import run
from support.spark_lake import fill_mixed, records_of_rows, records_of_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers

TIMES = {"since": "2026-11-16T05:00", "until": "2026-11-16T07:00"}
NAME = "lake.orders"


def test_a_table_of_a_rest_catalog(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, copy = topic(partitions=2), topic(partitions=2)
    with rest_catalog(tmp_path / "warehouse") as address:
        with pytest.raises(OptionError, match=r"there is no table lake\.orders in the catalog"):
            open_table(NAME, catalog=address)
        settings = {"to": NAME, "catalog": address, "table_format": "iceberg"}
        for first in (0, 10):
            fill_mixed(node, source, 10, first=first)
            place = str(tmp_path / "checkpoint")
            run(spark, node, archive.pipeline, topic=[source], checkpoint=place, **settings)
        wanted = records_of_topic(node, source)
        table = open_table(NAME, catalog=address)
        assert records_of_rows(read(spark, table, table.load())) == wanted
        seen = load_catalog("anybody", type="rest", uri=address).load_table(NAME).scan().to_arrow()
        found = sorted((row["partition"], row["offset"]) for row in seen.to_pylist())
        assert found == [row[:2] for row in wanted], "whoever asks the catalog sees them, too"
        here = {"kafka.bootstrap.servers": node.bootstrap, "catalog": address, "archive": NAME}
        assert audit.pipeline(spark, topic=source, **here) == 0
        replay.pipeline(spark, to=copy, **TIMES, **here)
    assert [r[2:5] for r in records_of_topic(node, copy)] == [r[2:5] for r in wanted]
    with pytest.raises(OptionError, match=r"the catalog .* cannot be asked for table lake\.orders"):
        open_table(NAME, catalog=address)
