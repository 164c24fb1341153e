"""Topics with known content, and queries over them by the source."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import pytest

from .helpers import produce_all, producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ENDS_S_MAX = 180
STARTS_MAX = 4
LATE_WORKER = "Python worker failed to connect back"
Place = tuple[int, int]


class Brokers(Protocol):
    """A node or a cluster."""

    @property
    def bootstrap(self) -> str: ...


def fill(broker: Brokers, topic: str, values: Mapping[int, list[str]]) -> None:
    """Publishes texts to partitions, in order."""
    client = producer(broker)
    for partition, texts in values.items():
        produce_all(client, topic, [{"value": t, "partition": partition} for t in texts])


def fill_numbers(broker: Brokers, topic: str, partitions: int, count: int) -> None:
    """Publishes 0 to `count` - 1 to each partition, so that a value says its offset."""
    fill(broker, topic, {p: [str(n) for n in range(count)] for p in range(partitions)})


def batch(spark: SparkSession, broker: Brokers, **options: Any) -> DataFrame:
    """A batch query; `_` in a keyword stands for `.`."""
    return spark.read.format("penstock").options(**_options(broker, options)).load()


def stream(spark: SparkSession, broker: Brokers, **options: Any) -> DataFrame:
    """A streaming query; `_` in a keyword stands for `.`."""
    return spark.readStream.format("penstock").options(**_options(broker, options)).load()


def _options(broker: Brokers, options: Mapping[str, Any]) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": broker.bootstrap}
    return given | {name.replace("_", "."): str(value) for name, value in options.items()}


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of every row, in order."""
    rows = frame.select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def run_to_end(start: Callable[[], StreamingQuery], seconds: float = ENDS_S_MAX) -> StreamingQuery:
    """Runs a query that ends by itself.

    Spark gives a Python process ten seconds to report that it has started, and has no setting for
    it. On a busy machine one may be later; such a query is started again.
    """
    from pyspark.errors import StreamingQueryException

    for number in range(1, STARTS_MAX + 1):
        query = start()
        try:
            assert query.awaitTermination(seconds), "the query did not end"
            break
        except StreamingQueryException as e:
            if number == STARTS_MAX or not was_late(e):
                raise
    return query


def was_late(error: Exception) -> bool:
    """Whether a query failed since a Python process of Spark's was late; shown among the warnings.

    So no such query is started again without a word.
    """
    if LATE_WORKER not in str(error):
        return False
    warnings.warn("a Python process of Spark's was late: started again", stacklevel=3)
    return True


class Sunk:
    """What a stream has handed to its sink, batch by batch; fails in the batch it is told to."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Place]] = {}
        self.fail_in: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("partition", "offset").collect()
        if batch_id == self.fail_in:
            raise RuntimeError("told to fail")
        self.batches[batch_id] = sorted((row["partition"], row["offset"]) for row in rows)

    @property
    def places(self) -> list[Place]:
        return sorted(place for found in self.batches.values() for place in found)

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[n]) for n in sorted(self.batches) if self.batches[n]]


class Streams:
    """Queries of one test, with one checkpoint; `run` reads all that is there and stops."""

    def __init__(self, spark: SparkSession, node: Brokers, checkpoint: Path) -> None:
        self._spark, self._node, self._checkpoint = spark, node, checkpoint
        self.sunk = Sunk()
        self.started: list[StreamingQuery] = []

    def start(self, *, available_now: bool = False, **options: Any) -> StreamingQuery:
        frame = stream(self._spark, self._node, **options)
        writer = frame.writeStream.foreachBatch(self.sunk).option(
            "checkpointLocation", str(self._checkpoint)
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        self.started.append(query)
        return query

    def run(self, **options: Any) -> StreamingQuery:
        return run_to_end(lambda: self.start(available_now=True, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for query in self.started:
            query.stop()

    def error(self, **options: Any) -> str:
        with pytest.raises(Exception) as failed:  # noqa: PT011  # Spark has several kinds of them
            self.run(**options)
        return str(failed.value)
