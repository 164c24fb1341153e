"""Runs the scenario files beside this one; `scenario.py` and `security_scenario.py` say what their
lines mean.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scenario.metadata.security_scenario import SecurityScenario

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    expected = file.read_text(encoding="utf-8")
    run = SecurityScenario()
    lines = []
    for line in expected.splitlines():
        if line.startswith(("+ ", "= ")):
            continue
        lines.append(line)
        if line.startswith("> "):
            lines += run.run(line[2:])
    actual = "\n".join(lines) + "\n"
    if os.environ.get("PENSTOCK_REWRITE"):
        file.write_text(actual, encoding="utf-8")
    assert actual == expected
    assert run.replayed() == run.image


def test_there_are_scenarios() -> None:
    assert FILES
