"""The programs in `examples/` do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.process import BrokerProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def output_of(example: str, node: BrokerProcess) -> list[str]:
    """What an example prints; it has to end by itself."""
    source = EXAMPLES / example
    assert '"localhost:9092"' in source.read_text(), "it runs without arguments too"
    done = subprocess.run(
        [sys.executable, str(source), node.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_example_is_tested_here() -> None:
    tested = set(re.findall(r'output_of\("(.+\.py)"', Path(__file__).read_text()))
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


@pytest.mark.timeout(300)
def test_point_to_point(group_node: BrokerProcess) -> None:
    *workers, last = output_of("point_to_point.py", group_node)
    shares = [int(re.fullmatch(r"worker-\d did (\d+) jobs", line)[1]) for line in workers]  # type: ignore[index]
    assert len(shares) == 3
    assert all(shares), "everyone has something to do"
    assert sum(shares) == 60
    assert last == "60 of 60 jobs are done"


@pytest.mark.timeout(300)
def test_publish_subscribe(group_node: BrokerProcess) -> None:
    assert output_of("publish_subscribe.py", group_node) == [
        f"{name} got 20 of 20 orders" for name in ("billing", "shipping", "statistics")
    ]


@pytest.mark.timeout(300)
def test_exactly_once(group_node: BrokerProcess) -> None:
    assert output_of("exactly_once.py", group_node) == [
        "2000 payments, 2000 receipts, 4 kills",
        "each exactly once, in order",
    ]


@pytest.mark.timeout(300)
def test_offsets_in_database(group_node: BrokerProcess) -> None:
    assert output_of("offsets_in_database.py", group_node) == [
        "2000 payments, 2000 counted, 4 kills",
        "the balances are right",
    ]


@pytest.mark.timeout(300)
def test_task_queue(node: BrokerProcess, share_groups: None) -> None:
    assert output_of("task_queue.py", node) == [
        "59 tasks are done, 1 was rejected",
        "task 7 took 2 tries",
    ]
