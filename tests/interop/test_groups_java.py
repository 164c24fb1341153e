"""Groups of Apache's own Java consumers: every scenario of `java/GroupScenarios.java`, all run by
one JVM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from support.process import BrokerProcess
from support.reference import java_command

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "GroupScenarios.java"
NAMES = re.findall(r'all\.put\("([^"]+)"', SOURCE.read_text())
RUN_SECONDS_MAX = 240


@pytest.fixture(scope="module")
def results(shared_group_node: BrokerProcess) -> dict[str, str | None]:
    """What became of each scenario: None, or what went wrong."""
    command = java_command(str(SOURCE), shared_group_node.bootstrap, f"java-groups-{os.getpid()}")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"the Java program said nothing:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    for line in lines:
        print(f"{line['seconds']:6.2f} s  {line['name']}")
    return {line["name"]: line["error"] for line in lines}


def test_there_are_scenarios() -> None:
    assert len(NAMES) > 15


@pytest.mark.timeout(RUN_SECONDS_MAX + 30)
@pytest.mark.parametrize("name", NAMES)
def test_java(group_node: BrokerProcess, results: dict[str, str | None], name: str) -> None:
    assert name in results, "the program ended before this scenario"
    assert results[name] is None, results[name]
