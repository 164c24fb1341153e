"""The pipeline replay: a range of an archive back to a topic, once and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message

from penstock.spark.errors import OptionError
from penstock.spark.lake.replay import Replay
from penstock.spark.ready import replay
from penstock.spark.sink import sink_options
from penstock.spark.transactions import Prepared, Transaction, Written, begin, commit
from penstock.spark.writer import connect
from support.helpers import TopicMaker, make_topic
from support.process import BrokerProcess
from support.spark_lake import START_MS, Archive, fill_mixed, records_of_topic
from support.spark_sink import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers

COUNT = 24
SINCE, UNTIL = "2026-11-16T06:00:00", "2026-11-16T07:00:04+01:00"
"""The records 4 to 19, by their times."""
RANGE = range(4, 20)
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def archive(
    spark: SparkSession, shared_node: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Archive:
    name = make_topic(shared_node, "replayed-source", 2)
    made = Archive(spark, shared_node, name, tmp_path_factory.mktemp("archive"))
    fill_mixed(shared_node, name, COUNT)
    made.run()
    return made


def run(archive: Archive, to: str, **settings: Any) -> None:
    settings = {"since": SINCE, "until": UNTIL, **settings}
    kafka = {"kafka.bootstrap.servers": archive.node.bootstrap}
    replay.pipeline(archive.spark, archive=str(archive.folder), to=to, **settings, **kafka)


def origin(message: Message) -> dict[str, str]:
    found = dict((message.headers() or [])[-4:])
    return {name.removeprefix("penstock.source."): (v or b"").decode() for name, v in found.items()}


def numbers(archive: Archive, to: str, partition: int | None = None) -> list[int]:
    """Which records are there, in the order of each partition, by the time they had."""
    return [
        (int(origin(message)["timestamp"]) - START_MS) // 250
        for message in sorted(committed(archive.node, to), key=lambda m: m.offset() or 0)
        if partition is None or message.partition() == partition
    ]


def test_a_range_comes_back_as_it_was(archive: Archive, topic: TopicMaker) -> None:
    to = topic(partitions=2)
    run(archive, to)
    for partition in range(2):
        assert numbers(archive, to, partition) == [n for n in RANGE if n % 2 == partition]
    source = {
        (p, offset): rest for p, offset, *rest in records_of_topic(archive.node, archive.topic)
    }
    for message in committed(archive.node, to):
        said = origin(message)
        assert said["topic"] == archive.topic
        time, key, value, headers = source[int(said["partition"]), int(said["offset"])]
        assert (message.partition(), message.key(), message.value()) == (
            int(said["partition"]),
            key,
            value,
        )
        assert (message.headers() or [])[:-4] == headers
        assert int(said["timestamp"]) == time
        assert message.timestamp()[1] == time


def test_times_of_their_own_on_request(archive: Archive, topic: TopicMaker) -> None:
    to = topic(partitions=2)
    run(archive, to, keep_timestamps=False)
    assert (
        min(message.timestamp()[1] for message in committed(archive.node, to)) > START_MS + DAY_MS
    )


def test_a_repeated_command_writes_nothing_twice(archive: Archive, topic: TopicMaker) -> None:
    to = topic(partitions=2)
    for _ in range(2):
        run(archive, to)
    assert sorted(numbers(archive, to)) == list(RANGE)
    run(archive, to, again="on purpose")
    assert sorted(numbers(archive, to)) == sorted([*RANGE, *RANGE])


def test_one_that_was_interrupted_goes_on(
    archive: Archive, topic: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = topic(partitions=2)
    written = []
    write = Replay._write

    def die_in_the_third(self: Replay, rows: Any, step: int, tasks: int) -> None:
        if step == 2:
            raise InterruptedError
        write(self, rows, step, tasks)
        written.append(step)

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "_write", die_in_the_third)
        with pytest.raises(InterruptedError):
            run(archive, to, rows_per_step=3)
    assert written == [0, 1]
    assert len(numbers(archive, to)) == 12
    run(archive, to, rows_per_step=3)
    for partition in range(2):
        assert numbers(archive, to, partition) == [n for n in RANGE if n % 2 == partition]


def test_a_step_that_died_before_its_end_does_not_hold_the_next_replay_up(
    node: BrokerProcess, topic: TopicMaker
) -> None:
    to = topic()
    kafka = {"kafka.bootstrap.servers": node.bootstrap, "kafka.delivery.timeout.ms": "5000"}
    rows: Any = None
    died = Replay(rows, to, [], 1, True, True, kafka)
    options = sink_options(kafka)
    with connect(options) as brokers:
        name = options.transactional_id(died._app, 0)
        for step in (2, 3):
            identity = begin(brokers, name, options.transaction_timeout_ms)
            Transaction(brokers, identity).mark(to, step, Written(1, 1))
            if step == 2:
                commit(brokers, Prepared(identity, step))
    assert died._committed(2) == 2


def test_partitions_and_keys_are_chosen(archive: Archive, topic: TopicMaker) -> None:
    to = topic()
    picked = {"partitions": "1", "keys": "key 5,key 7,key 8", "topic": archive.topic}
    run(archive, to, keep_partitions=False, **picked)
    assert numbers(archive, to) == [5, 7]
    run(archive, to, keep_partitions=False, topic="another")
    assert numbers(archive, to) == [5, 7]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"since": "yesterday"}, "since must be a time as"),
        ({"until": SINCE}, "must be before until"),
        ({"partitions": "a"}, "partitions must be numbers"),
        ({"rows_per_step": 0}, "rows_per_step must be 1 or more"),
    ],
)
def test_settings_that_make_no_sense(archive: Archive, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        run(archive, "nowhere", **settings)
