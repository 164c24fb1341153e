"""A batch query: the driver resolves where each partition starts and ends, tasks read.

The ends are resolved once, when the query is planned; what is published later is not read. The
object is pickled to the tasks and holds nothing but options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.spark.cluster import Cluster
from penstock.spark.fetch import Range
from penstock.spark.offsets import Bound, Kind
from penstock.spark.options import SourceOptions, for_batch
from penstock.spark.plan import clip, cut, resolve_end, resolve_start
from penstock.spark.reading import read

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """What one task reads, and which brokers it may ask beside those that the options name."""

    def __init__(self, wanted: Range, brokers: tuple[str, ...]) -> None:
        super().__init__(wanted)
        self.range = wanted
        self.brokers = brokers


class PenstockReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = for_batch(options)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = Cluster(options)
        places = cluster.partitions()
        starting = options.starting or Bound("startingOffsets", Kind.EARLIEST)
        ending = options.ending or Bound("endingOffsets", Kind.LATEST)
        start = resolve_start(starting, cluster, places, options)
        end = resolve_end(ending, cluster, places)
        start = clip(start, starting, cluster, options)
        end = clip(end, ending, cluster, options)
        ranges = {p: (start[p], end[p]) for p in places if start[p] < end[p]}
        found = cut(ranges, options.tasks_min, options.rows_per_task_max)
        # Spark takes an empty list for one task without a range.
        return [RangePartition(r, cluster.brokers) for r in found or [Range("", 0, 0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read(partition.range, self._options, partition.brokers)
