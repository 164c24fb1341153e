"""Transactions of Apache's own Java client: every scenario of `java/TransactionScenarios.java`, all
run by one JVM; on one node, and on a cluster, where coordinators and leaders are apart.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.process import BrokerProcess
from support.reference import java_command
from support.transactions import SETTINGS, newest_features

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "TransactionScenarios.java"
NAMES = re.findall(r'all\.put\("([^"]+)"', SOURCE.read_text())
RUN_SECONDS_MAX = 240

Results = dict[str, str | None]


def run_all(bootstrap: str) -> Results:
    """What became of each scenario: None, or what went wrong."""
    command = java_command(str(SOURCE), bootstrap, f"java-txn-{os.getpid()}")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"the Java program said nothing:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    for line in lines:
        print(f"{line['seconds']:6.2f} s  {line['name']}")
    return {line["name"]: line["error"] for line in lines}


@pytest.fixture(scope="module")
def on_node(shared_txn_node: BrokerProcess) -> Results:
    return run_all(shared_txn_node.bootstrap)


@pytest.fixture(scope="module")
def txn_cluster(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, tmp_path_factory.mktemp("cluster"), SETTINGS, kind=target) as cluster:
        newest_features(cluster.nodes[1])
        yield cluster


@pytest.fixture(scope="module")
def on_cluster(txn_cluster: Cluster) -> Results:
    return run_all(txn_cluster.bootstrap)


def test_there_are_scenarios() -> None:
    assert len(NAMES) > 15


@pytest.mark.timeout(RUN_SECONDS_MAX + 30)
@pytest.mark.parametrize("name", NAMES)
def test_java(txn_node: BrokerProcess, on_node: Results, name: str) -> None:
    assert name in on_node, "the program ended before this scenario"
    assert on_node[name] is None, on_node[name]


@pytest.mark.timeout(RUN_SECONDS_MAX + 30)
@pytest.mark.parametrize("name", NAMES)
def test_java_on_a_cluster(txn_cluster: Cluster, on_cluster: Results, name: str) -> None:
    assert name in on_cluster, "the program ended before this scenario"
    assert on_cluster[name] is None, on_cluster[name]
