"""Runs the scenario files beside this one; `scenario.py` says what their lines mean."""

from __future__ import annotations

from pathlib import Path

from scenario.raft.scenario import Scenario
from support.scenarios import ASKED, of_folder, play


@of_folder(__file__)
def test_scenario(file: Path) -> None:
    play(
        file,
        Scenario,
        lambda run, line: run.run(line.removeprefix(ASKED)),
        event=ASKED,
        effects=("+ ", "= "),
    )
