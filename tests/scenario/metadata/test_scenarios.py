"""Runs the scenario files beside this one; `scenario.py` and `security_scenario.py` say what their
lines mean.
"""

from __future__ import annotations

from pathlib import Path

from scenario.metadata.security_scenario import SecurityScenario
from support.scenarios import ASKED, of_folder, play


@of_folder(__file__)
def test_scenario(file: Path) -> None:
    run = play(
        file,
        SecurityScenario,
        lambda run, line: run.run(line.removeprefix(ASKED)),
        event=ASKED,
        effects=("+ ", "= "),
    )
    assert run.replayed() == run.image
