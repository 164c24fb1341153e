"""`penstock doctor` at a node where all is well; what it finds elsewhere is in test_unreachable."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.node import NodeProcess

from .conftest import run_with

pytestmark = pytest.mark.penstock_only
FILES_FEW = 2_000


def test_a_node_that_is_well(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        environment = {"PENSTOCK_BOOTSTRAP": node.bootstrap}
        told = run_with(environment, "doctor")
        assert told.code == 0, told
        assert "nothing is wrong" in told.out
        assert "limits of the processes" not in told.out, "those of a node here are looked at"
        facts = run_with(environment, "doctor", "--format", "json").json()
        assert facts["healthy"]
        assert [f for f in facts["findings"] if f["severity"] != "hint"] == []


def test_a_node_that_may_open_few_files(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    limited = ["prlimit", f"--nofile={FILES_FEW}:{FILES_FEW}", *node.command()]
    node.command = lambda: limited  # type: ignore[method-assign]
    with node:
        told = run_with({"PENSTOCK_BOOTSTRAP": node.bootstrap}, "doctor", "--format", "json")
    problems = [finding["problem"] for finding in told.json(code=3)["findings"]]
    assert "node 1 may have only 2,000 files and connections open" in problems
