"""How far a checkpoint says that an archive has come, held against its table.

Spark goes on where the checkpoint is. If the table was moved away, removed or replaced by an older
copy, everything up to there would be missing from it without a word; so a checkpoint that is
further than its table is refused. Offsets alone do not tell: a table ends at its last row, the
checkpoint behind transaction markers and what was aborted. It is ahead if the table does not have
its last batch, and the topic has a record in between, or cannot show it any more.

Checkpoints are read by Spark's own file systems, wherever they are. Runs in the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.cluster import Cluster
from penstock.spark.errors import SparkError
from penstock.spark.lake.table import Span, Table
from penstock.spark.offsets import Offsets, Partition, StreamOffset, to_json
from penstock.spark.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Done(NamedTuple):
    """The last micro-batch that a checkpoint knows to be done."""

    query: str
    batch: int
    offsets: Offsets


def check_not_ahead(
    spark: SparkSession, table: Table, checkpoint: str, kafka: Mapping[str, str]
) -> None:
    """Refuses a checkpoint that is further than its table."""
    done = last_done(spark, checkpoint)
    version = table.load()
    if done is None or table.last_batch(version, done.query) >= done.batch:
        return
    ends = {place: version.state.span(place) or Span(0, 0) for place in done.offsets}
    ahead = {p: Span(ends[p].end, at) for p, at in done.offsets.items() if ends[p].end < at}
    is_known = table.last_batch(version, done.query) >= 0
    if (lost := _first_lost(spark, ahead, kafka, is_known=is_known)) is not None:
        topic, partition = lost
        raise SparkError(
            f"the checkpoint {checkpoint} has archived topic {topic} partition {partition} up to"
            f" offset {done.offsets[lost]}, but the table in {table.folder} ends at offset"
            f" {ends[lost].end}: it was moved away, removed or replaced by an older one. Bring the"
            " table back; or give another checkpoint, or remove this one: a new one goes on where"
            " the table ends"
        )


def _first_lost(
    spark: SparkSession,
    ahead: Mapping[Partition, Span],
    kafka: Mapping[str, str],
    *,
    is_known: bool,
) -> Partition | None:
    """A partition with records that the checkpoint has passed and the table lacks. What the topic
    has removed since counts if the table knows nothing of the query.
    """
    topics = ",".join(sorted({topic for topic, _ in ahead}))
    if not topics:
        return None
    cluster = Cluster(source_options({**kafka, "subscribe": topics}))
    there = sorted(set(cluster.partitions(missing_ok=True)) & set(ahead))
    firsts, lasts = cluster.earliest(there), cluster.latest(there)
    if not is_known and (gone := [p for p in there if firsts[p] > ahead[p].first]):
        return gone[0]
    left = {p: Span(max(firsts[p], ahead[p].first), min(lasts[p], ahead[p].end)) for p in there}
    left = {p: span for p, span in left.items() if span.first < span.end}
    if not left:
        return None
    found = (
        spark.read.format("penstock")
        .options(**kafka)
        .option("assign", json.dumps(_assigned(left)))
        .option("startingOffsets", json.dumps(to_json({p: s.first for p, s in left.items()})))
        .option("endingOffsets", json.dumps(to_json({p: s.end for p, s in left.items()})))
        .option("isolation.level", "read_committed")
        .option("failOnDataLoss", "false")
        .load()
        .select("topic", "partition")
        .head(1)
    )
    return (found[0]["topic"], found[0]["partition"]) if found else None


def _assigned(partitions: Mapping[Partition, Span]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def last_done(spark: SparkSession, checkpoint: str) -> Done | None:
    """What a checkpoint says; None for one that has nothing yet."""
    folder = _Folder(spark, checkpoint)
    numbers = [int(name) for name in folder.names("commits") if name.isdecimal()]
    if not numbers:
        return None
    query = json.loads(folder.text("metadata"))["id"]
    # A line that says the version, one about the batch, and one for each source.
    offset = folder.text(f"offsets/{max(numbers)}").split("\n")[2]
    return Done(query, max(numbers), StreamOffset.of(json.loads(offset)).offsets)


class _Folder:
    """A folder of any file system that Spark knows."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._java: Any = spark._jvm
        context: Any = spark.sparkContext
        self._place = place
        self._files = self._path("").getFileSystem(context._jsc.hadoopConfiguration())

    def _path(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self._place}/{name}")

    def names(self, name: str) -> list[str]:
        path = self._path(name)
        if not self._files.exists(path):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(path)]

    def text(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
