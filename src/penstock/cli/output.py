"""What commands print: tables or JSON on stdout, remarks on stderr.

A terminal gets colours and progress bars (`terminal.py`, which imports rich, and is imported only
then); a pipe gets plain, aligned columns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol


def print_json(value: Any) -> None:
    """One JSON document, indented when a person watches."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under column names; numbers stand to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) for row in rows)
        for i in range(len(columns))
    ]
    if sys.stdout.isatty():
        from penstock.cli import terminal

        terminal.print_table(columns, texts, right)
        return
    widths = [max(len(c), *(len(row[i]) for row in texts), 0) for i, c in enumerate(columns)]
    for cells in [[c.upper() for c in columns], *texts]:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        print("  ".join(padded).rstrip())


def print_pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair a line."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name.ljust(width)}  {value}")


def title(text: str) -> None:
    """A heading line of text output."""
    if sys.stdout.isatty():
        from penstock.cli import terminal

        terminal.print_title(text)
    else:
        print(text)


def clear_screen() -> None:
    """An empty terminal; a pipe keeps everything."""
    if sys.stdout.isatty():
        print("\x1b[2J\x1b[H", end="")


def remark(text: str) -> None:
    """A line for the person, kept out of what programs read."""
    print(text, file=sys.stderr)


class Progress(Protocol):
    @property
    def is_seen(self) -> bool: ...

    def advance(self, steps: int = 1) -> None: ...


class _Silent:
    is_seen = False

    def advance(self, steps: int = 1) -> None:
        """Nobody watches."""


@contextmanager
def progress(
    what: str, total: float | None, *, wanted: bool = True, in_bytes: bool = False
) -> Iterator[Progress]:
    """A bar on stderr while a person watches; otherwise, or when it is not `wanted`, nothing."""
    if not wanted or not sys.stderr.isatty():
        yield _Silent()
        return
    from penstock.cli import terminal

    with terminal.bar(what, total, in_bytes=in_bytes) as seen:
        yield seen


def plural(count: int, noun: str) -> str:
    """`1 message`, `2 messages`, `1,000 messages`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def bytes_text(count: float) -> str:
    """`512 B`, `1.5 KiB`, `20.0 GiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    for unit in units:
        if abs(count) < 1024 or unit == units[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
