"""Runs the scenario files beside this one; `scenario.py` says what their lines mean."""

from __future__ import annotations

from pathlib import Path

from scenario.groups_classic.scenario import Scenario
from support.scenarios import indented, of_folder, play


def happen(run: Scenario, line: str) -> list[str]:
    effects = run.run(line)
    run.check_replay()
    return indented(effects)


@of_folder(__file__)
def test_scenario(file: Path) -> None:
    play(file, Scenario, happen)
