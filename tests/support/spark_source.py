"""Topics with known content, and queries over them by the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .helpers import produce_all, producer
from .process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fill(broker: BrokerProcess, topic: str, values: Mapping[int, list[str]]) -> None:
    """Publishes texts to partitions, in order."""
    client = producer(broker)
    for partition, texts in values.items():
        produce_all(client, topic, [{"value": t, "partition": partition} for t in texts])


def fill_numbers(broker: BrokerProcess, topic: str, partitions: int, count: int) -> None:
    """Publishes 0 to `count` - 1 to each partition, so that a value says its offset."""
    fill(broker, topic, {p: [str(n) for n in range(count)] for p in range(partitions)})


def batch(spark: SparkSession, broker: BrokerProcess, **options: Any) -> DataFrame:
    """A batch query; `_` in a keyword stands for `.`."""
    return spark.read.format("penstock").options(**_options(broker, options)).load()


def stream(spark: SparkSession, broker: BrokerProcess, **options: Any) -> DataFrame:
    """A streaming query; `_` in a keyword stands for `.`."""
    return spark.readStream.format("penstock").options(**_options(broker, options)).load()


def _options(broker: BrokerProcess, options: Mapping[str, Any]) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": broker.bootstrap}
    return given | {name.replace("_", "."): str(value) for name, value in options.items()}


def places(frame: DataFrame) -> list[tuple[int, int]]:
    """Partition and offset of every row, in order."""
    rows = frame.select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)
