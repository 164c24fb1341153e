"""Runs the scenario files beside this one; `scenario.py` says what their lines mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scenario.streams_group.scenario import Scenario

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    expected = file.read_text(encoding="utf-8")
    run = Scenario()
    lines = []
    for line in expected.splitlines():
        if line.startswith(("+ ", "- ", "= ")):
            continue
        lines.append(line)
        if line.startswith("---"):
            run = Scenario()
        elif line.startswith("> "):
            lines += run.run(line[2:])
            run.rig.check_replay()
    actual = "\n".join(lines) + "\n"
    if os.environ.get("PENSTOCK_REWRITE"):
        file.write_text(actual, encoding="utf-8")
    assert actual == expected


def test_there_are_scenarios() -> None:
    assert FILES
