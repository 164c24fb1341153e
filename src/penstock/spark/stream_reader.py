"""A streaming query: which offsets the next micro-batch reads, decided by the driver.

Duty: the offsets of the checkpoint (`offsets.StreamOffset`), admission control, partitions that
appear, disappear or begin anew while the query runs, and progress for those who watch a group.

Invariants: the ranges of a micro-batch follow from its checkpointed start and end alone, so a
replay reads the same records. An end is never before its start. Under Trigger.AvailableNow nothing
is read beyond the target that was fixed when the query began.

Spark keeps one such object, with one Python process, for the life of a query; copies of it, made
from the options alone, read in the tasks. Progress is committed when the next micro-batch is
planned: by then the last one is done, while Spark's own `commit` comes a batch later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.spark.cluster import Cluster
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.offsets import Bound, Kind, Offsets, Partition, StreamOffset, ranges_between
from penstock.spark.options import SourceOptions, for_stream
from penstock.spark.plan import clip, cut, resolve_start, share_out
from penstock.spark.reader import RangePartition
from penstock.spark.reading import read

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = for_stream(options)
        self._target: Offsets | None = None
        self._noted: Offsets = {}
        self._latest: Offsets = {}
        self._batch_at_s = time.monotonic()

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        places = self._cluster.partitions()
        starting = self._options.starting or Bound("startingOffsets", Kind.LATEST)
        found = resolve_start(starting, self._cluster, places, self._options)
        found = clip(found, starting, self._cluster, self._options)
        return StreamOffset(found, initial=True).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark takes one limit only. Where both are given, `latestOffset` looks after the least.
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.rows_per_trigger_min is not None:
            return ReadMinRows(self._options.rows_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._there()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return StreamOffset(self._latest).as_dict() if self._latest else None

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        done = StreamOffset.of(start)
        self._check_subscription(done.offsets)
        self._note_progress(done)
        there = self._target
        if there is None:
            there = self._there()
        self._latest = there
        begin = self._begin(done.offsets, there)
        sizes = {p: there[p] - begin[p] for p in there if there[p] > begin[p]}
        if not self._enough(sum(sizes.values()), limit):
            return start
        if isinstance(limit, ReadMaxRows):
            sizes = share_out(sizes, limit.max_rows)
        end = {p: offset + sizes.get(p, 0) for p, offset in begin.items()}
        if end == done.offsets:
            return start
        self._batch_at_s = time.monotonic()
        # Starts that the checkpoint does not hold, or not these.
        unknown = begin if done.initial else _differing(begin, done.offsets)
        return StreamOffset(end, start=unknown).as_dict()

    def _there(self) -> Offsets:
        """Where each partition ends. A topic that is gone is missed by whoever has read of it."""
        return self._cluster.latest(self._cluster.partitions(missing_ok=True))

    def _enough(self, rows: int, limit: ReadLimit) -> bool:
        """Whether a micro-batch of so many rows is worth starting."""
        least = self._options.rows_per_trigger_min
        if least is None or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return True
        waited_s = time.monotonic() - self._batch_at_s
        return rows >= least or waited_s >= self._options.trigger_delay_s_max

    def _begin(self, done: Offsets, there: Offsets) -> Offsets:
        """Where each partition goes on: where it was, or at its beginning if it is new or began
        anew.
        """
        found = {p: offset for p, offset in done.items() if p in there}
        if gone := sorted(done.keys() - there.keys()):
            topic, partition = gone[0]
            self._lost(f"topic {topic} partition {partition} does not exist any more")
        anew = sorted(p for p, offset in found.items() if there[p] < offset)
        if anew:
            topic, partition = anew[0]
            self._lost(
                f"topic {topic} partition {partition} ends at offset {there[anew[0]]}, before"
                f" {found[anew[0]]}, up to which it was read: it was made anew or lost records"
            )
        fresh = [p for p in there if p not in done] + anew
        return found | self._cluster.earliest(fresh)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{what}; set failOnDataLoss to false to go on with what is there, or give the"
                " query a new checkpointLocation"
            )
        log.warning("%s; going on, as failOnDataLoss is false", what)

    def _check_subscription(self, done: Offsets) -> None:
        if others := sorted(p for p in done if not self._options.wants(p)):
            topic, partition = others[0]
            raise OptionError(
                f"the checkpoint has read topic {topic} partition {partition} up to offset"
                f" {done[others[0]]}, but the query now has {self._options.subscription}; give it a"
                " checkpointLocation of its own, or the old subscription"
            )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        stop = StreamOffset.of(end)
        self._check_subscription(stop.offsets)
        ranges = ranges_between(StreamOffset.of(start), stop)
        options = self._options
        found = cut(ranges, options.tasks_min, options.rows_per_task_max)
        return [RangePartition(r, self._cluster.brokers) for r in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read(partition.range, self._options, partition.brokers)

    def commit(self, end: dict[str, Any]) -> None:
        """Comes a batch late; `latestOffset` has noted this progress before."""

    def _note_progress(self, done: StreamOffset) -> None:
        group = self._options.group
        if group is None or done.initial or done.offsets == self._noted:
            return
        self._cluster.note_progress(group, done.offsets)
        self._noted = done.offsets


def _differing(begin: Offsets, done: Offsets) -> dict[Partition, int]:
    return {p: offset for p, offset in begin.items() if done.get(p) != offset}
