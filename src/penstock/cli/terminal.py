"""What a terminal gets to see in colours and in motion, by rich.

Import it only for a terminal that is there: rich takes longer to import than a small command to
do its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: list[bool]) -> None:
    """Rows under column names; the columns of `right` stand to the right."""
    table = Table(box=SIMPLE, header_style="bold cyan")
    for column, to_right in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if to_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_title(text: str) -> None:
    """A heading line."""
    Console().print(text, style="bold", markup=False, highlight=False)


class Bar:
    """A progress bar that is seen."""

    is_seen = True

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def advance(self, steps: int = 1) -> None:
        self._bars.advance(self._task, steps)


@contextmanager
def bar(what: str, total: float | None, *, in_bytes: bool) -> Iterator[Bar]:
    """A bar on stderr, gone when it is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield Bar(bars, bars.add_task(what, total=total))
