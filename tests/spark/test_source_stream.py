"""Streams: what each micro-batch reads, over restarts, new partitions and records that go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from support.helpers import TopicMaker, admin, make_topic
from support.process import BrokerProcess
from support.spark_source import ENDS_S_MAX, Place, Streams, fill, fill_numbers
from support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
COMMAND_S_MAX = 60


@pytest.fixture
def streams(spark: SparkSession, node: BrokerProcess, tmp_path: Path) -> Iterator[Streams]:
    with Streams(spark, node, tmp_path / "checkpoint") as made:
        yield made


def everything(partitions: int, count: int) -> list[Place]:
    return [(p, n) for p in range(partitions) for n in range(count)]


def trim(node: BrokerProcess, topic: str, offset: int) -> None:
    for future in admin(node).delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(10)


def test_available_now_reads_what_is_there_in_batches_of_the_size_asked_for(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(partitions=3)
    fill(node, name, {0: ["x"] * 50, 1: ["x"] * 3, 2: ["x"] * 20})
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 30}
    streams.run(**options)
    assert streams.sunk.sizes == [30, 30, 13]
    assert len(set(streams.sunk.places)) == 73
    assert len([p for p in streams.sunk.batches[0] if p[0] == 1]) == 3, "the small one comes whole"
    streams.run(**options)
    assert streams.sunk.sizes == [30, 30, 13], "nothing new, nothing read"
    fill(node, name, {1: ["y"] * 5})
    streams.run(**options)
    assert streams.sunk.sizes == [30, 30, 13, 5]


def test_rows_published_before_batch_0_was_done_are_not_lost_with_latest(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    """Spark does not checkpoint where batch 0 starts, and asks again after a restart: by then
    "latest" is later.
    """
    name = topic()
    fill_numbers(node, name, 1, 3)
    query = streams.start(subscribe=name)
    eventually(lambda: 0 in streams.sunk.batches, ENDS_S_MAX)
    streams.sunk.fail_in = 1
    fill_numbers(node, name, 1, 4)
    with pytest.raises(Exception, match="told to fail"):
        query.awaitTermination(ENDS_S_MAX)
    streams.sunk.fail_in = None
    fill_numbers(node, name, 1, 2)
    streams.run(subscribe=name)
    assert streams.sunk.places == [(0, n) for n in range(3, 9)]


def test_batch_0_that_failed_reads_the_same_again_with_latest(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    fill_numbers(node, name, 1, 3)
    streams.sunk.fail_in = 0
    options = {"subscribe": name, "startingTimestamp": 0}
    assert "told to fail" in streams.error(**options)
    streams.sunk.fail_in = None
    # Where the restarted query would begin by its options is later than where it began.
    streams.run(subscribe=name, startingOffsets="latest")
    assert streams.sunk.batches[0] == [(0, 0), (0, 1), (0, 2)]


def test_a_failed_batch_is_read_again_and_nothing_twice(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(partitions=2)
    fill_numbers(node, name, 2, 30)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    streams.sunk.fail_in = 1
    assert "told to fail" in streams.error(**options)
    assert streams.sunk.sizes == [20]
    streams.sunk.fail_in = None
    streams.run(**options)
    assert streams.sunk.sizes == [20, 20, 20]
    assert streams.sunk.places == everything(2, 30)


def test_new_partitions_and_topics_are_read_from_their_beginning(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    fill_numbers(node, name, 1, 5)
    streams.start(subscribePattern=f"^{name}(-more)?$", startingOffsets="latest")
    eventually(lambda: 0 in streams.sunk.batches, ENDS_S_MAX)
    for future in admin(node).create_partitions([NewPartitions(name, 2)]).values():
        future.result(10)
    fill(node, name, {1: ["a"] * 4})
    eventually(lambda: len(streams.sunk.places) == 4, ENDS_S_MAX)
    make_topic(node, f"{name}-more", partitions=3)
    fill(node, f"{name}-more", {2: ["b"] * 6})
    eventually(lambda: len(streams.sunk.places) == 10, ENDS_S_MAX)
    assert streams.sunk.places == [(1, n) for n in range(4)] + [(2, n) for n in range(6)]


def test_a_micro_batch_waits_for_enough(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    fill_numbers(node, name, 1, 10)
    query = streams.start(
        subscribe=name,
        startingOffsets="earliest",
        minOffsetsPerTrigger=50,
        maxOffsetsPerTrigger=60,
        maxTriggerDelay="10m",
    )
    eventually(lambda: query.lastProgress is not None, ENDS_S_MAX)
    assert streams.sunk.places == []
    fill_numbers(node, name, 1, 45)
    eventually(lambda: streams.sunk.sizes == [55], ENDS_S_MAX)


def test_the_longest_wait_for_enough(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    fill_numbers(node, name, 1, 10)
    more = {"minOffsetsPerTrigger": 50, "maxTriggerDelay": "1s"}
    streams.start(subscribe=name, startingOffsets="earliest", **more)
    eventually(lambda: streams.sunk.sizes == [10], ENDS_S_MAX)


def test_progress_is_seen_in_a_group(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(partitions=2)
    fill_numbers(node, name, 2, 7)
    group = f"g-{name}"
    options = {"subscribe": name, "startingOffsets": "earliest", "kafka_group_id": group}
    streams.run(**options, groupIdPrefix="spark-kafka-source")
    fill(node, name, {1: ["later"] * 3})
    assert lag_by_partition(node, group) == {(name, 0, 7): 0, (name, 1, 7): 3}
    streams.run(**options)
    assert lag_by_partition(node, group) == {(name, 0, 7): 0, (name, 1, 10): 0}


def lag_by_partition(node: BrokerProcess, group: str) -> dict[tuple[str, int, int], int]:
    """What `penstock group describe` shows: how far each partition is from its committed offset."""
    shown = subprocess.run(
        [*PENSTOCK, "group", "describe", group, "--bootstrap", node.bootstrap, "--format", "json"],
        capture_output=True,
        timeout=COMMAND_S_MAX,
        check=True,
    )
    [described] = json.loads(shown.stdout)
    return {(p["topic"], p["partition"], p["committed"]): p["lag"] for p in described["partitions"]}


def test_records_that_were_trimmed_before_they_were_read(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = {"subscribe": name, "startingOffsets": "earliest"}
    fill_numbers(node, name, 1, 5)
    streams.run(**options)
    fill_numbers(node, name, 1, 20)
    trim(node, name, 11)
    said = streams.error(**options)
    assert f"topic {name} partition 0: offsets 5 to 10 are gone" in said
    assert "failOnDataLoss" in said
    streams.run(**options, failOnDataLoss="false")
    assert streams.sunk.places == [(0, n) for n in [*range(5), *range(11, 25)]]


def test_a_topic_that_was_made_anew(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    options = {"subscribe": name, "startingOffsets": "earliest"}
    fill_numbers(node, name, 1, 9)
    streams.run(**options)
    for future in admin(node).delete_topics([name]).values():
        future.result(10)
    make_topic(node, name)
    fill_numbers(node, name, 1, 4)
    said = streams.error(**options)
    assert f"topic {name} partition 0 ends at offset 4, before 9" in said
    streams.run(**options, failOnDataLoss="false")
    assert sorted(streams.sunk.batches[1]) == [(0, n) for n in range(4)]


def test_a_topic_that_was_deleted(streams: Streams, node: BrokerProcess, topic: TopicMaker) -> None:
    kept, gone = topic(), topic()
    options = {"subscribe": f"{kept},{gone}", "startingOffsets": "earliest"}
    for name in (kept, gone):
        fill_numbers(node, name, 1, 3)
    streams.run(**options)
    for future in admin(node).delete_topics([gone]).values():
        future.result(10)
    fill_numbers(node, kept, 1, 2)
    assert f"topic {gone} partition 0 does not exist any more" in streams.error(**options)
    streams.run(**options, failOnDataLoss="false")
    assert streams.sunk.batches[1] == [(0, 3), (0, 4)]


def test_a_checkpoint_of_another_topic(
    streams: Streams, node: BrokerProcess, topic: TopicMaker
) -> None:
    first, second = topic(), topic()
    for name in (first, second):
        fill_numbers(node, name, 1, 3)
    streams.run(subscribe=first, startingOffsets="earliest")
    said = streams.error(subscribe=second, startingOffsets="earliest")
    assert f"the checkpoint has read topic {first} partition 0 up to offset 3" in said
    assert f"subscribe {second}" in said


def test_a_broker_that_goes_away_in_the_middle(
    spark: SparkSession, fresh_node: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    node = fresh_node()
    name = TopicMaker(node, lambda: "t")()
    fill_numbers(node, name, 1, 50)
    with Streams(spark, node, tmp_path / "checkpoint") as streams:
        streams.start(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=10)
        eventually(lambda: len(streams.sunk.places) >= 20, ENDS_S_MAX)
        node.kill()
        node.start()
        fill_numbers(node, name, 1, 30)
        eventually(lambda: len(streams.sunk.places) >= 80, ENDS_S_MAX)
        assert streams.sunk.places == everything(1, 80)


def test_bounds_of_a_stream(streams: Streams, node: BrokerProcess, topic: TopicMaker) -> None:
    name = topic(partitions=2)
    fill_numbers(node, name, 2, 10)
    said = streams.error(subscribe=name, endingOffsets="latest")
    assert "option endingOffsets is for batches" in said
    said = streams.error(subscribe=name, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=4)
    assert "minOffsetsPerTrigger (5) is larger than maxOffsetsPerTrigger (4)" in said
    streams.run(subscribe=name, startingOffsets=json.dumps({name: {"0": 8, "1": -1}}))
    assert streams.sunk.places == [(0, 8), (0, 9)]
