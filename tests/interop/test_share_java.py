"""Share groups of Apache's own consumer: every scenario of `java/ShareScenarios.java`, all run by
one JVM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.features import SHARE_VERSION, enable_feature
from support.process import BrokerProcess
from support.reference import java_command
from support.share_groups import SHARE_SETTINGS

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "ShareScenarios.java"
NAMES = re.findall(r'all\.put\("([^"]+)"', SOURCE.read_text())
RUN_SECONDS_MAX = 240


@pytest.fixture(scope="module")
def results(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str | None]]:
    """What became of each scenario: None, or what went wrong."""
    broker = broker_maker(tmp_path_factory.mktemp("share-java"))
    broker.settings |= SHARE_SETTINGS
    with broker:
        if broker.KIND == "kafka":
            enable_feature(broker.bootstrap, SHARE_VERSION)
        command = java_command(str(SOURCE), broker.bootstrap, f"java-share-{os.getpid()}")
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, f"the program said nothing:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        for line in lines:
            print(f"{line['seconds']:6.2f} s  {line['name']}")
        yield {line["name"]: line["error"] for line in lines}


def test_there_are_scenarios() -> None:
    assert len(NAMES) > 5


@pytest.mark.timeout(RUN_SECONDS_MAX + 30)
@pytest.mark.parametrize("name", NAMES)
def test_java(results: dict[str, str | None], name: str) -> None:
    assert name in results, "the program ended before this scenario"
    assert results[name] is None, results[name]
