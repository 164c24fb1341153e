"""Reading from a cluster whose nodes die."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.cluster import Cluster
from support.spark_source import ENDS_S_MAX, Streams, batch, fill_numbers, places
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_leader_killed_during_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    expected = [(p, n) for p in range(2) for n in range(90)]
    with (
        Cluster(3, tmp_path / "cluster") as cluster,
        Streams(spark, cluster, tmp_path / "checkpoint") as streams,
    ):
        cluster.make_topic("t", partitions=2)
        fill_numbers(cluster, "t", 2, 60)
        streams.start(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=20)
        eventually(lambda: len(streams.sunk.places) >= 40, ENDS_S_MAX)
        cluster.kill(cluster.leader("t", 0))
        fill_numbers(cluster, "t", 2, 30)
        eventually(lambda: len(streams.sunk.places) >= len(expected), ENDS_S_MAX)
        assert streams.sunk.places == expected
        one = cluster.nodes[cluster.running[0]]
        assert places(batch(spark, one, subscribe="t")) == expected
