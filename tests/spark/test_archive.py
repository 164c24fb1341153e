"""The pipeline archive: what a topic has is in the table, in every format."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.spark.errors import SparkError
from penstock.spark.lake.progress import last_done
from penstock.spark.lake.table import FORMATS
from support.helpers import TopicMaker, produce_all, producer
from support.lake import seen_by_others
from support.process import BrokerProcess
from support.spark_lake import Archive, fill_mixed, records_of_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers


@pytest.fixture
def archive(spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path) -> Archive:
    return Archive(spark, node, topic(partitions=2), tmp_path)


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_table_has_what_the_topic_has(archive: Archive, table_format: str) -> None:
    fill_mixed(archive.node, archive.topic, 20)
    archive.run(table_format=table_format)
    fill_mixed(archive.node, archive.topic, 10, first=20)
    archive.run(table_format=table_format)
    archive.run(table_format=table_format)
    wanted = records_of_topic(archive.node, archive.topic)
    assert len(wanted) == 30
    assert archive.records() == wanted
    seen = seen_by_others(archive.table)
    assert [(r["partition"], r["offset"], r["key"], r["value"]) for r in seen] == [
        (p, offset, key, value) for p, offset, _, key, value, _ in wanted
    ]
    day = date(2026, 11, 16)
    assert {(row["date"], row["hour"]) for row in seen} == {(day, 5), (day, 6)}
    assert all(row["hour"] == row["timestamp"].hour for row in seen), "hours of UTC"
    assert list(seen[0]) == [
        *("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"),
        *("date", "hour"),
    ]


def test_several_topics_and_a_lost_checkpoint(archive: Archive, topic: TopicMaker) -> None:
    other = topic(partitions=2)
    fill_mixed(archive.node, archive.topic, 6)
    archive.run()
    archive.checkpoint = archive.checkpoint.with_name("another")
    fill_mixed(archive.node, archive.topic, 4, first=6)
    fill_mixed(archive.node, other, 4)
    archive.run(topic=[archive.topic, other])
    found = [(r["topic"], r["partition"], r["offset"]) for r in seen_by_others(archive.table)]
    assert found == sorted(
        [(archive.topic, p, n) for p in range(2) for n in range(5)]
        + [(other, p, n) for p in range(2) for n in range(2)]
    )


def test_a_checkpoint_without_its_table_is_refused(archive: Archive) -> None:
    fill_mixed(archive.node, archive.topic, 6)
    archive.run()
    moved = archive.folder.rename(archive.folder.with_name("moved"))
    for first in (6, 8):
        with pytest.raises(SparkError) as refused:
            archive.run()
        fill_mixed(archive.node, archive.topic, 2, first=first)
    said = str(refused.value)
    assert f"the checkpoint {archive.checkpoint} has archived topic {archive.topic} part" in said
    assert f"the table in {archive.folder} ends at offset 0: it was moved away" in said
    archive.checkpoint = archive.checkpoint.with_name("another")
    archive.run()
    wanted = records_of_topic(archive.node, archive.topic)
    assert archive.records() == wanted
    assert len(wanted) == 10
    archive.checkpoint, archive.folder = archive.checkpoint.with_name("checkpoint"), moved
    archive.run()
    assert archive.records() == wanted, "with its table it goes on"


def test_a_checkpoint_behind_what_was_aborted_is_not_ahead(archive: Archive) -> None:
    fill_mixed(archive.node, archive.topic, 2)
    archive.run()
    client = producer(archive.node, transactional_id=f"aborts-{archive.topic}")
    client.init_transactions()
    for _ in range(2):
        client.begin_transaction()
        client.produce(archive.topic, b"never", partition=0)
        client.flush()
        client.abort_transaction()
        archive.run()
    done = last_done(archive.spark, str(archive.checkpoint))
    assert done is not None
    assert done.offsets[archive.topic, 0] > 1, "it has passed what was aborted"
    fill_mixed(archive.node, archive.topic, 2, first=2)
    archive.run()
    assert archive.records() == records_of_topic(archive.node, archive.topic)


def test_values_are_decoded_beside_what_they_were(archive: Archive) -> None:
    values: list[Any] = [{"value": b'{"a": 1}'}, {"value": b"{"}, {"value": None}]
    produce_all(producer(archive.node), archive.topic, values)
    archive.run(value_format="json", value_schema="a int")
    seen = seen_by_others(archive.table)
    assert [row["value"] for row in seen] == [b'{"a": 1}', b"{", None]
    assert [row["decoded"] for row in seen] == [{"a": 1}, None, None]
    assert [row["decode_error"] is None for row in seen] == [True, False, True]
    fill_mixed(archive.node, archive.topic, 2)
    with pytest.raises(StreamingQueryException, match="other columns"):
        archive.run()
    assert len(archive.records()) == 3
