"""docs/pipelines.md: its programs run as they stand, in their order, and its commands are known."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.pipeline.ready import PipelineGroup
from support.helpers import make_topic, produce_all, producer
from support.process import BrokerProcess
from support.spark_sink import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipelines.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
ORDERS = [("ann", 3.0), ("bob", 1.5), ("ann", 4.0)]


@pytest.mark.timeout(300)
def test_the_programs(spark: SparkSession, node: BrokerProcess, tmp_path: Path) -> None:
    for topic in ("orders", "totals", "copied", "shouted"):
        make_topic(node, topic)
    values = [json.dumps({"customer": who, "amount": amount}) for who, amount in ORDERS]
    produce_all(producer(node), "orders", [{"value": value} for value in values])
    names: dict[str, Any] = {}
    for program in PROGRAMS:
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


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_are_known(line: str) -> None:
    """Each is parsed down to its last option; nothing is run."""
    program, group, verb, *words = shlex.split(line)
    assert (program, group) == ("penstock", "pipeline")
    commands: Any = PipelineGroup(name=group)
    command = commands.get_command(None, verb)
    assert command is not None
    assert command.make_context(verb, words).params
