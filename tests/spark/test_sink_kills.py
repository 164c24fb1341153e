"""A stream from topic to topic whose Python workers, and whose whole Spark with its driver, are
killed at a step of the sink: the output holds each row once.

What dies is a real process of a real Spark, by SIGKILL, in a driver program of its own. Each run of
the suite takes the steps of the day; `make test-long` takes all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from support.helpers import TopicMaker, make_topic, produce_all, producer
from support.process import BrokerProcess
from support.rotation import of_the_day
from support.spark_sink import values
from support.spark_sink_faults import Fault, Place

TESTS = Path(__file__).resolve().parents[1]
ROWS = 100
DRIVER_SECONDS_MAX = 1_000
SAID_SHOWN = 6_000

WORKER_FAULTS = [
    Fault(request, sent=sent)
    for request in ("InitProducerId", "OffsetFetch", "AddPartitionsToTxn", "Produce")
    for sent in (False, True)
] + [Fault("AddOffsetsToTxn"), Fault("TxnOffsetCommit"), Fault("TxnOffsetCommit", sent=True)]
RESTART_FAULTS = [
    Fault("EndTxn", whole_spark=True),
    Fault("EndTxn", count=2, whole_spark=True),
    Fault("EndTxn", count=2, sent=True, whole_spark=True),
    Fault("Produce", sent=True, whole_spark=True),
    Fault("TxnOffsetCommit", sent=True, whole_spark=True),
    # Spark does not repeat a commit whose worker has died: it aborts, and the query fails.
    Fault("EndTxn", sent=True),
]
"""Each strikes the query that the one before has left behind."""
WORKER_FAULTS_A_DAY = 4
RESTART_FAULTS_A_DAY = 2

of_today_or_all = pytest.mark.parametrize(
    "all_steps", [False, pytest.param(True, marks=pytest.mark.long)], ids=["today", "all"]
)


class Driver:
    """Runs the driver program again and again in one folder."""

    def __init__(self, node: BrokerProcess, folder: Path, source: str) -> None:
        self.node, self.folder, self.source = node, folder, source
        self.place = Place(folder)
        self.said = folder / "driver.out"

    def run(self, target: str, *faults: str) -> int:
        """The exit code; what the program said is in `said`."""
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        # Into a file: workers that outlive a killed Spark would hold a pipe open.
        with self.said.open("wb") as said:
            return subprocess.run(
                [
                    *(sys.executable, "-m", "support.spark_sink_driver"),
                    *(self.node.bootstrap, self.source, target, str(self.folder / "checkpoint")),
                    *faults,
                ],
                env=os.environ | {"PYTHONPATH": paths, "MORTAL_SINK_FOLDER": str(self.folder)},
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=DRIVER_SECONDS_MAX,
                check=False,
            ).returncode

    def explain(self, what: object) -> str:
        return f"{what}:\n{self.said.read_text(errors='replace')[-SAID_SHOWN:]}"


@pytest.fixture
def driver(node: BrokerProcess, topic: TopicMaker, tmp_path: Path) -> Driver:
    name = topic(partitions=2)
    messages = [{"value": value, "partition": i % 2} for i, value in enumerate(sorted(rows()))]
    produce_all(producer(node), name, messages)
    return Driver(node, tmp_path, name)


def rows() -> set[bytes]:
    return {b"row %03d" % i for i in range(ROWS)}


def assert_each_once(found: Counter[bytes], what: object) -> None:
    missing, doubled = rows() - set(found), [v for v, n in found.items() if n > 1]
    assert (missing, doubled) == (set(), []), what


@pytest.mark.slow
@pytest.mark.timeout(1200)
@of_today_or_all
def test_workers_killed_at_every_step(
    driver: Driver, node: BrokerProcess, topic: TopicMaker, all_steps: bool
) -> None:
    faults = WORKER_FAULTS if all_steps else of_the_day(WORKER_FAULTS, WORKER_FAULTS_A_DAY)
    target = topic(partitions=2)
    names = [make_topic(node, f"{target}-{i}", 2) for i in range(len(faults))]
    code = driver.run(target, *(msgspec.json.encode(fault).decode() for fault in faults))
    assert code == 0, driver.explain("a query did not survive")
    for name, fault in zip(names, faults, strict=True):
        assert_each_once(values(node, name), fault)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@of_today_or_all
def test_the_driver_killed_at_every_step(
    driver: Driver, node: BrokerProcess, topic: TopicMaker, all_steps: bool
) -> None:
    faults = RESTART_FAULTS if all_steps else of_the_day(RESTART_FAULTS, RESTART_FAULTS_A_DAY)
    target = topic(partitions=2)
    for fault in faults:
        driver.place.order(fault)
        code = driver.run(target)
        assert driver.place.happened(), driver.explain(f"{fault} did not happen")
        assert code != 0, driver.explain(f"{fault} did not end the program")
    assert driver.run(target) == 0, driver.explain("the query does not go on")
    assert_each_once(values(node, target), "after all")
