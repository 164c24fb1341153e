"""Spark's own Kafka connector beside ours: each reads what the other wrote, with the same options,
the same rows and the same schema.

Its jars come by `python tools/fetch_java.py`. They may be older than the Spark that runs them: it
is the newest connector that could be had, and what is compared are options, rows and schemas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.helpers import TopicMaker, make_topic
from support.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
LIBS = ROOT / "build" / "spark-kafka-libs"
PROGRAM_SECONDS_MAX = 900
SAID_SHOWN = 6_000
ROWS = 54


def jars() -> str:
    found = sorted(LIBS.glob("*.jar"))
    if not any(jar.name.startswith("spark-sql-kafka") for jar in found):
        pytest.skip(f"no jars of Spark's Kafka connector in {LIBS}: run tools/fetch_java.py")
    return ",".join(map(str, found))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_same_as_sparks_own_connector(
    node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "support.spark_connector_driver"]
    theirs, ours = topic(partitions=2), topic(partitions=2)
    for name in (theirs, ours):
        make_topic(node, f"{name}-copied", 2)
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [*program, node.bootstrap, theirs, ours, jars(), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-SAID_SHOWN:]
    found: dict[str, dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    for what, of_both in found.items():
        assert of_both["penstock"] == of_both["kafka"], what
        assert of_both["penstock"], what
    for name in (theirs, ours, f"{theirs}-copied", f"{ours}-copied"):
        assert len(found[f"rows of {name}"]["penstock"]) == ROWS
    assert 0 < len(found["offsets"]["penstock"]) < ROWS
