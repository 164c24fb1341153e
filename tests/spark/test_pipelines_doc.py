"""docs/pipelines.md: its programs and commands run as they stand, in their order."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.app import run as run_command
from penstock.cli.pipeline.ready import PipelineGroup
from penstock.spark.pipeline import supervise
from support.helpers import make_topic, produce_all, producer
from support.process import BrokerProcess
from support.spark_child import SharedChild
from support.spark_flows import RUN_S_MAX, objects, send
from support.spark_sink import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipelines.md").read_text()
AT_MS = int(datetime(2026, 1, 31, 10, 30, tzinfo=UTC).timestamp() * 1000)
ORDERS = [("ann", 3.0), ("bob", 1.5), ("ann", 4.0)]


def blocks(kind: str, text: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands_of(section: str) -> list[str]:
    """The commands below a heading that begins so."""
    found = next(part for part in PAGE.split("\n## ") if part.startswith(section))
    return [line for block in blocks("console", found) for line in block.splitlines()]


def test_the_programs(spark: SparkSession, node: BrokerProcess, tmp_path: Path) -> None:
    for topic in ("orders", "totals", "copied", "shouted"):
        make_topic(node, topic)
    values = [json.dumps({"customer": who, "amount": amount}) for who, amount in ORDERS]
    produce_all(producer(node), "orders", [{"value": value} for value in values])
    names: dict[str, Any] = {}
    for program in blocks("python", PAGE):
        here = program.replace('"checkpoints/', f'"{tmp_path}/')
        exec(here.replace("localhost:9092", node.bootstrap), names)
    totals = [json.loads(m.value() or b"") for m in committed(node, "totals")]
    assert sorted((t["customer"], t["amount"]) for t in totals) == [("ann", 7.0), ("bob", 1.5)]
    assert [(m.value() or b"").decode() for m in committed(node, "copied")] == values
    names["pipeline"](
        spark,
        topic="orders",
        to="shouted",
        checkpoint=str(tmp_path / "shouting"),
        **{"kafka.bootstrap.servers": node.bootstrap},
    )
    [query] = spark.streams.active
    try:
        query.processAllAvailable()  # from now on, what is published
        produce_all(producer(node), "orders", [{"value": value} for value in values])
        query.processAllAvailable()
    finally:
        query.stop()
    assert [(m.value() or b"").decode() for m in committed(node, "shouted")] == [
        value.upper() for value in values
    ]


def by_id(rows: list[Any]) -> list[Any]:
    """In the order of their ids: a pipeline may share rows out anew."""
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def home(
    spark: SparkSession,
    fresh_node: Callable[..., BrokerProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BrokerProcess:
    """A user's new broker and empty folder; pipelines run on the Spark of the tests."""
    node = fresh_node()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.bootstrap)
    monkeypatch.setattr(supervise, "Child", SharedChild)
    monkeypatch.setattr(SharedChild, "spark", spark, raising=False)
    return node


def run_beside(lines: list[str]) -> None:
    """Commands for a pipeline that runs in this process, which a stop has to reach."""

    def commands() -> None:
        for line in lines:
            subprocess.run(
                [sys.executable, "-m", "penstock.cli", *shlex.split(line)[1:]],
                check=True,
                timeout=RUN_S_MAX,
                stdout=subprocess.DEVNULL,
            )

    threading.Thread(target=commands).start()


def test_the_commands_for_projects(home: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(home, "lines")
    produce_all(producer(home), "lines", [{"value": "hello big world"}])
    new, run, *beside = commands_of("Projects")
    monkeypatch.setattr(SharedChild, "while_running", lambda: run_beside(beside), raising=False)
    assert run_command(shlex.split(new)[1:]) == 0
    assert run_command(shlex.split(run)[1:]) == 0
    assert sorted(m.key() or b"" for m in committed(home, "words")) == [b"big", b"hello", b"world"]


def test_the_commands_for_ready_pipelines(home: BrokerProcess, tmp_path: Path) -> None:
    make_topic(home, "orders", 2)
    make_topic(home, "payments")
    orders = [
        {"id": n, "customer": who, "amount": amount}
        for n, (who, amount) in enumerate([*ORDERS, ("eve", 0.0)])
    ]
    send(home, "orders", orders, timestamp=AT_MS, partition=1)
    send(home, "payments", [{"id": 2}], timestamp=AT_MS + 1000)
    for line in commands_of("Ready pipelines"):
        assert run_command(shlex.split(line)[1:]) == 0, line
    assert (tmp_path / "audit.html").exists()
    assert by_id(objects(home, "orders-again")) == orders
    assert {(t["customer"], t["sum_amount"]) for t in objects(home, "totals")} == {
        ("ann", 7.0),
        ("bob", 1.5),
        ("eve", 0.0),
    }
    assert [met["this"]["id"] for met in objects(home, "paid")] == [2]
    assert by_id(objects(home, "distinct")) == orders
    assert by_id(objects(home, "good")) == orders[:3]
    sent_back = [*orders, orders[3]]
    assert by_id(objects(home, "orders")) == sent_back, "what was bad is there once more"


@pytest.mark.parametrize("line", commands_of("On a cluster"))
def test_the_commands_for_clusters_are_known(line: str) -> None:
    """Each is parsed down to its last option; the clusters are not there to run them."""
    program, group, verb, *words = shlex.split(line)
    assert (program, group) == ("penstock", "pipeline")
    commands: Any = PipelineGroup(name=group)
    command = commands.get_command(None, verb)
    assert command is not None
    assert command.make_context(verb, words).params


def test_every_command_is_run_or_known() -> None:
    sections = ("Projects", "Ready pipelines", "On a cluster")
    every = [line for name in sections for line in commands_of(name)]
    assert every == [line for block in blocks("console", PAGE) for line in block.splitlines()]
