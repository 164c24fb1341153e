"""Runs the scenario files beside this one; `scenario.py` says what their lines mean."""

from __future__ import annotations

from pathlib import Path

from scenario.streams_group.scenario import Scenario
from support.scenarios import ASKED, of_folder, play


def happen(run: Scenario, line: str) -> list[str]:
    effects = run.run(line.removeprefix(ASKED))
    run.rig.check_replay()
    return effects


@of_folder(__file__)
def test_scenario(file: Path) -> None:
    play(file, Scenario, happen, event=ASKED, effects=("+ ", "- ", "= "))
