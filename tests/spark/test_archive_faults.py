"""An archive whose driver fails at every step of a batch and of a compaction: each row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.spark.lake import append, files, staging
from penstock.spark.lake.compact import Policy, compact
from penstock.spark.lake.table import FORMATS
from support.helpers import TopicMaker
from support.lake import offsets_read, offsets_seen
from support.process import BrokerProcess
from support.spark_lake import Archive, fill_mixed, records_of_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes to start Spark's workers

AT_ONCE = Policy(quiet_s=-60.0, small_files_max=2, file_bytes=2**20)
"""Hours are over at once, even by a clock that is a little behind that of the files."""
TESTS = Path(__file__).resolve().parents[1]
DRIVER_SECONDS_MAX = 400
MODULES = ("parquet_table", "delta_table", "iceberg_table")


class Died(Exception):
    pass


def die_when_staged(patch: pytest.MonkeyPatch) -> None:
    """All files are written, none is in the table."""

    def stage(*arguments: Any) -> None:
        staging.stage(*arguments)
        raise Died("staged")

    patch.setattr(append, "stage", stage)


def die_between_moves(patch: pytest.MonkeyPatch) -> None:
    """One file is in its place, the others wait."""

    def publish(folder: Path, staged: Any) -> None:
        files.publish(folder, staged[:1])
        if staged:
            raise Died("moved")

    for module in MODULES:
        patch.setattr(f"penstock.spark.lake.{module}.publish", publish)


def die_when_committed(patch: pytest.MonkeyPatch) -> None:
    """The table has the batch, Spark's checkpoint does not."""

    def forget(_: object) -> None:
        raise Died("committed")

    patch.setattr(staging.Batch, "forget", forget)


Fault = Callable[[pytest.MonkeyPatch], None]
FAULTS: list[Fault] = [die_when_staged, die_between_moves, die_when_committed]


@pytest.fixture
def archive(spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path) -> Archive:
    return Archive(spark, node, topic(partitions=2), tmp_path)


def assert_each_once(archive: Archive) -> None:
    wanted = records_of_topic(archive.node, archive.topic)
    assert archive.records() == wanted
    assert offsets_seen(archive.table) == [offset for _, offset, *_ in wanted]


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_driver_dies_at_every_step(
    archive: Archive, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, fault in enumerate(FAULTS):
        fill_mixed(archive.node, archive.topic, 8, first=8 * number)
        with monkeypatch.context() as patch:
            fault(patch)
            with pytest.raises(StreamingQueryException, match="Died"):
                archive.run(table_format=table_format)
    tries = archive.folder / "_penstock" / "staging"
    assert list(tries.iterdir())
    for left in tries.iterdir():
        os.utime(left, (0, 0))
    fill_mixed(archive.node, archive.topic, 8, first=8 * len(FAULTS))
    archive.run(table_format=table_format)
    assert_each_once(archive)
    assert not list(tries.iterdir()), "what died is tidied up by the next one"


@pytest.mark.parametrize("table_format", FORMATS)
def test_compaction_keeps_the_rows_and_dies_well(
    archive: Archive, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_mixed(archive.node, archive.topic, 20)
    archive.run(table_format=table_format, rows_per_batch=4)
    before = archive.table.load()
    assert compact(archive.spark, archive.table, Policy(quiet_s=3600.0, small_files_max=1)) == 0
    with monkeypatch.context() as patch:
        table = archive.table
        die_between_moves(patch)
        with pytest.raises(Died):
            compact(archive.spark, table, AT_ONCE)
    assert len(offsets_read(archive.table)) == 20, "as before, or carried out"
    compact(archive.spark, archive.table, AT_ONCE)
    after = archive.table.load()
    assert len(after.files) < len(before.files) // 2
    assert after.state == before.state
    assert_each_once(archive)


@pytest.mark.slow
def test_the_driver_is_killed_in_the_middle_of_a_commit(archive: Archive) -> None:
    fill_mixed(archive.node, archive.topic, 8)
    place = archive.node.bootstrap, archive.topic, str(archive.folder.parent), "parquet"
    ran = subprocess.run(
        [sys.executable, "-m", "support.lake_driver", *place],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=DRIVER_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stdout + ran.stderr[-4000:]
    assert len(list(archive.folder.glob("date=*/hour=*/*.parquet"))) == 1, "of three or more"
    archive.run()
    assert_each_once(archive)


def test_an_archive_compacts_as_it_goes(archive: Archive) -> None:
    fill_mixed(archive.node, archive.topic, 16)
    archive.run(rows_per_batch=4, compact_every=2, compact_after_s=-60.0, compact_files=1)
    assert len(archive.table.load().files) == 2, "one for each hour"
    assert_each_once(archive)
