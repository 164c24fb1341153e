"""Plays text scenarios: events, and below each all that must follow from it.

A run drops the effects that stand in a file and makes them anew; both texts have to be the same. A
line of dashes begins another scenario, other lines (comments, empty ones) are kept. With
PENSTOCK_REWRITE in the environment the file is written anew, for its difference to be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

INDENTED = "    "
"""How the effects of files begin whose events begin with `TIMED`."""
TIMED = "t="
ASKED = "> "
BREAK = "---"

Run = TypeVar("Run")


def of_folder(test_file: str) -> pytest.MarkDecorator:
    """A test with the parameter `file`, once for each scenario file beside the test's own."""
    files = sorted(Path(test_file).parent.glob("*.txt"))
    assert files, f"there are no scenarios beside {test_file}"
    return pytest.mark.parametrize("file", files, ids=lambda file: file.stem)


def play(
    file: Path,
    begin: Callable[[], Run],
    happen: Callable[[Run, str], list[str]],
    *,
    event: str = TIMED,
    effects: str | tuple[str, ...] = INDENTED,
) -> Run:
    """Plays a file and compares it; the last run. `happen` returns the lines below an event."""
    expected = file.read_text(encoding="utf-8")
    run, lines = begin(), list[str]()
    for line in expected.splitlines():
        if line.startswith(effects):
            continue
        lines.append(line)
        if line.startswith(BREAK):
            run = begin()
        elif line.startswith(event):
            lines += happen(run, line)
    actual = "\n".join(lines) + "\n"
    if os.environ.get("PENSTOCK_REWRITE"):
        file.write_text(actual, encoding="utf-8")
    assert actual == expected
    return run


def indented(effects: list[str]) -> list[str]:
    return [INDENTED + effect for effect in effects]
