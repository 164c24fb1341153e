"""A program for tests: the same work by Spark's own Kafka connector and by ours, on one node.

    python -m support.spark_connector_driver BOOTSTRAP TOPIC_OF_THEIRS TOPIC_OF_OURS JARS FOLDER

Prints, as JSON, what each of both did or read: {"what": {"kafka": ..., "penstock": ...}}. Topics
have two partitions. Jars have to be there when a JVM starts, so this is a process of its own.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock.spark.session import start_session
from support.spark_settings import SETTINGS
from support.spark_source import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BOTH = ("kafka", "penstock")
COLUMNS = (
    "key binary, value binary, partition int, headers array<struct<key: string, value: binary>>"
)
ROWS: list[tuple[Any, ...]] = [
    (b"k", b"v", 0, [("a", b"1"), ("a", None), ("\u00fc", b"")]),
    (None, b"without a key", 1, None),
    (b"tombstone", None, 1, []),
    (b"", b"", 0, [("b", b"2")]),
    *((b"%d" % n, b"x" * n, n % 2, None) for n in range(50)),
]
ACCEPTED = {
    "groupIdPrefix": "job",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "kafkaConsumer.pollTimeoutMs": "60000",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "100",
    "kafka.request.timeout.ms": "40000",
    "kafka.fetch.max.bytes": "1000000",
}
"""Options that jobs carry; all of them go to both."""


class Work:
    def __init__(self, spark: SparkSession, bootstrap: str, folder: str) -> None:
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": bootstrap}
        self.folder = folder

    def read(self, kind: str, **options: str) -> DataFrame:
        return self.spark.read.format(kind).options(**self.servers, **options).load()

    def write(self, kind: str, topic: str) -> None:
        frame = self.spark.createDataFrame(ROWS, COLUMNS).coalesce(1)
        frame.write.format(kind).mode("append").options(**self.servers, topic=topic).save()

    def copy(self, source: str, sink: str, topic: str, target: str) -> None:
        """A stream of all that is there from one's source to the other's sink."""
        options = {**self.servers, **ACCEPTED, "subscribe": topic, "startingOffsets": "earliest"}
        frame = self.spark.readStream.format(source).options(**options).load()
        columns = frame.select("key", "value", "partition", "headers")
        writer = columns.writeStream.format(sink).options(**self.servers, topic=target)
        writer = writer.option("checkpointLocation", f"{self.folder}/{target}").queryName(target)
        run_to_end(writer.trigger(availableNow=True).start)


def shown(frame: DataFrame, *columns: str) -> list[str]:
    """Rows as text, in order; all columns unless some are named."""
    rows = frame.orderBy("topic", "partition", "offset")
    return [str(row) for row in (rows.select(*columns) if columns else rows).collect()]


def bounds(topic: str, other: str, first_ms: int, last_ms: int) -> dict[str, dict[str, str]]:
    """Ways to say where a batch begins and ends."""
    return {
        "offsets": {
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: {"0": 3, "1": -2}}),
            "endingOffsets": json.dumps({topic: {"0": -1, "1": 5}}),
        },
        "assign": {"assign": json.dumps({topic: [1]}), "minPartitions": "4"},
        "pattern": {"subscribePattern": f"{topic}|{other}"},
        "timestamps": {
            "subscribe": topic,
            "startingTimestamp": str(first_ms),
            "endingTimestamp": str(last_ms),
        },
        "timestamps of partitions": {
            "subscribe": topic,
            "startingOffsetsByTimestamp": json.dumps({topic: {"0": first_ms, "1": last_ms + 9}}),
            "endingOffsetsByTimestamp": json.dumps({topic: {"0": last_ms + 9, "1": last_ms + 9}}),
            "startingOffsetsByTimestampStrategy": "latest",
            "maxRecordsPerPartition": "7",
        },
    }


def compare(work: Work, theirs: str, ours: str) -> dict[str, dict[str, Any]]:
    """What both did, by what was asked."""
    work.write("kafka", theirs)
    work.write("penstock", ours)
    work.copy("kafka", "penstock", ours, f"{ours}-copied")
    work.copy("penstock", "kafka", theirs, f"{theirs}-copied")
    all_rows = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    found: dict[str, dict[str, Any]] = {}
    for topic in (theirs, ours, f"{theirs}-copied", f"{ours}-copied"):
        frames = {kind: work.read(kind, **all_rows, subscribe=topic) for kind in BOTH}
        found[f"rows of {topic}"] = {kind: shown(frame) for kind, frame in frames.items()}
        found[f"schema of {topic}"] = {k: frame.schema.json() for k, frame in frames.items()}
    plain = {kind: work.read(kind, subscribe=ours).schema.json() for kind in BOTH}
    found["schema without headers"] = plain
    columns = ("key", "value", "partition", "headers")
    found["what was written"] = {
        kind: shown(work.read("kafka", **all_rows, subscribe=topic), *columns)
        for kind, topic in (("kafka", theirs), ("penstock", ours))
    }
    found["what was copied"] = {
        kind: shown(work.read("penstock", **all_rows, subscribe=f"{topic}-copied"), *columns)
        for kind, topic in (("kafka", theirs), ("penstock", ours))
    }
    times = work.read("kafka", subscribe=theirs).selectExpr(
        "unix_millis(min(timestamp))", "unix_millis(max(timestamp))"
    )
    first_ms, last_ms = times.collect()[0]
    for name, options in bounds(theirs, ours, first_ms, last_ms).items():
        found[name] = {kind: shown(work.read(kind, **ACCEPTED, **options)) for kind in BOTH}
    return found


def main(bootstrap: str, theirs: str, ours: str, jars: str, folder: str) -> None:
    more = {"spark.jars": jars, "spark.sql.session.timeZone": "UTC"}
    session = start_session("connector", "local[2]", SETTINGS | more)
    found = compare(Work(session, bootstrap, folder), theirs, ours)
    session.stop()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
