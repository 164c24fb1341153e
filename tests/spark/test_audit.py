"""The pipeline audit: equal is equal, and a missing, doubled or changed row is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.ready import audit, replay
from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.spark_lake import START_MS, Archive, fill_mixed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def archive(spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path) -> Archive:
    return Archive(spark, node, topic(partitions=2), tmp_path)


@pytest.fixture
def run(spark: SparkSession, node: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an audit; its exit code and what it says as JSON."""

    def run(topic: str, **settings: Any) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        kafka = {"kafka.bootstrap.servers": node.bootstrap}
        code = audit.pipeline(spark, topic=topic, print_as="json", **settings, **kafka)
        return code, json.loads(capsys.readouterr().out)

    return run


def rows(said: dict[str, Any]) -> list[tuple[int, list[int]]]:
    return [(group["partition"], group["rows"]) for group in said["groups"]]


def test_an_archive_that_is_whole(
    archive: Archive, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_mixed(archive.node, archive.topic, 10)
    archive.run()
    fill_mixed(archive.node, archive.topic, 3, first=10)
    page = tmp_path / "audit.html"
    code, said = run(archive.topic, archive=str(archive.folder), report=str(page))
    assert (code, said["equal"], said["places"]) == (0, True, [])
    assert rows(said) == [(0, [2, 2]), (0, [3, 3]), (1, [2, 2]), (1, [3, 3])]
    assert "partition 0: 2 offsets are not archived yet" in said["notes"]
    text = page.read_text()
    assert "are equal: 10 rows" in text
    assert "<svg" in text
    assert "http" not in text
    assert "<script" not in text


def spoil(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Changes the only data file that begins at offset 0 of partition 0, under its name."""
    for path in folder.glob("date=*/hour=*/*.parquet"):
        found = pq.ParquetFile(path).read()
        if found["partition"][0].as_py() == 0 and found["offset"][0].as_py() == 0:
            pq.write_table(change(found), path)
            return
    raise AssertionError("there is no such file")


def test_a_missing_a_doubled_and_a_changed_row_are_named(
    archive: Archive, run: Run, tmp_path: Path
) -> None:
    messages = [{"value": b"%d" % n, "timestamp": START_MS} for n in range(6)]
    produce_all(producer(archive.node), archive.topic, messages)
    produce_all(producer(archive.node), archive.topic, [{"value": b"x", "partition": 1}])
    archive.run()

    def change(found: pa.Table) -> pa.Table:
        values = found["value"].to_pylist()
        values[4] = b"5"
        found = found.set_column(found.schema.get_field_index("value"), "value", [values])
        return pa.concat_tables([found.slice(0, 1), found.slice(2, 4), found.slice(3, 1)])

    spoil(archive.folder, change)
    page = tmp_path / "audit.html"
    code, said = run(archive.topic, archive=str(archive.folder), report=str(page))
    assert (code, said["equal"]) == (1, False)
    assert [(p["what"], p["partition"], p["offset"]) for p in said["places"]] == [
        ("missing", 0, 1),
        ("doubled", 0, 3),
        ("changed", 0, 4),
    ]
    assert 'class="differs"' in page.read_text()


def test_offsets_of_transactions_are_no_differences(archive: Archive, run: Run) -> None:
    client = producer(archive.node, transactional_id=f"{archive.topic}-writer")
    client.init_transactions()
    for number in range(4):
        client.begin_transaction()
        produce_all(client, archive.topic, [{"value": b"%d" % number}])
        client.abort_transaction() if number == 1 else client.commit_transaction()
    archive.run()
    code, said = run(archive.topic, archive=str(archive.folder))
    assert (code, sum(left for _, (left, _) in rows(said))) == (0, 3)
    extents = [(e["first"], e["last"], e["rows"]) for e in said["extents"]]
    assert extents == [(0, 6, 3)] * 2, "a marker after each, and the aborted one"


def test_a_replayed_copy_is_equal_by_partition_and_hour(
    archive: Archive, run: Run, topic: TopicMaker
) -> None:
    fill_mixed(archive.node, archive.topic, 10)
    archive.run()
    copy, wide = topic(partitions=2), topic(partitions=3)
    kafka = {"kafka.bootstrap.servers": archive.node.bootstrap}
    times = {"since": "2026-11-16", "until": "2026-11-17"}
    for to in (copy, wide):
        replay.pipeline(archive.spark, archive=str(archive.folder), to=to, **times, **kafka)
    code, said = run(archive.topic, copy=copy)
    assert (code, rows(said)) == (0, [(0, [2, 2]), (0, [3, 3]), (1, [2, 2]), (1, [3, 3])])
    code, said = run(archive.topic, copy=wide, since="2026-11-16T06:00")
    assert (code, rows(said)) == (0, [(-1, [6, 6])])
    assert "all partitions are compared together" in said["notes"][0]


def test_a_copy_that_differs(node: BrokerProcess, topic: TopicMaker, run: Run) -> None:
    left, right = topic(), topic()
    given: list[dict[str, Any]] = [
        {"key": b"a", "value": None, "headers": [("h", None), ("i", b"x")]},
        {"key": b"b", "value": b"2"},
        {"key": b"c", "value": b"3"},
    ]
    produce_all(producer(node), left, given)
    swapped = {"key": None, "value": b"a", "headers": [("h", b"i"), ("x", None)]}
    produce_all(producer(node), right, [swapped, given[1], given[1], given[2]])
    code, said = run(left, copy=right, by_hour=False)
    assert code == 1
    assert sorted((p["what"], p["side"], p["offset"]) for p in said["places"]) == [
        ("additional", f"topic {right}", 0),
        ("doubled", f"topic {left}", 1),
        ("missing", f"topic {left}", 0),
    ]


def test_settings_that_make_no_sense(archive: Archive, run: Run) -> None:
    with pytest.raises(OptionError, match="there is no table in"):
        run(archive.topic, archive=str(archive.folder))
    fill_mixed(archive.node, archive.topic, 2)
    archive.run()
    with pytest.raises(SparkError, match="has no row of topic other"):
        run("other", archive=str(archive.folder))


def test_the_text_for_people(
    archive: Archive, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_mixed(archive.node, archive.topic, 4)
    archive.run()
    kafka = {"kafka.bootstrap.servers": archive.node.bootstrap}
    assert audit.pipeline(spark, topic=archive.topic, archive=str(archive.folder), **kafka) == 0
    out = capsys.readouterr().out
    assert "2026-11-16 05:00" in out
    assert "are equal: 4 rows" in out
