"""What a run shows on a terminal. Import it only for one that is there: rich takes its time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.pipeline.view import note_text, progress_text, working_text

_WORK = ""
"""Stands among the names of queries for what is under way, until one of them reports."""


class LiveView:
    """A line per query that is drawn anew; everything else scrolls by above."""

    def __init__(self, name: str, live: Live) -> None:
        self._name, self._live = name, live
        self._lines: dict[str, str] = {}

    def progress(self, line: dict[str, Any]) -> None:
        self._lines.pop(_WORK, None)
        self._draw(line["query"], progress_text(line))

    def working(self, line: dict[str, Any]) -> None:
        self._draw(_WORK, working_text(self._name, line))

    def _draw(self, about: str, text: str) -> None:
        self._lines[about] = text
        self._live.update(Text("\n".join(self._lines.values())), refresh=True)

    def note(self, event: str, text: str, **more: Any) -> None:
        self._above(note_text(self._name, event, text))

    def output(self, line: str) -> None:
        if sys.stdout.isatty():
            self._above(line)
        else:
            print(line, flush=True)

    def _above(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)


@contextmanager
def live_view(name: str) -> Iterator[LiveView]:
    """The view on stderr, as long as the run lasts."""
    console = Console(stderr=True, soft_wrap=True)
    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        yield LiveView(name, live)
