"""The results as Markdown: a table for each part, a column for each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.run import number_text

Row = Mapping[str, Any]


def tables(parts: Mapping[str, tuple[str, Sequence[Row]]]) -> str:
    """All parts: the name of each with what it is measured by, and its rows."""
    return "\n\n".join(f"## {name}\n\n{table(by, rows)}" for name, (by, rows) in parts.items())


def table(by: str, rows: Sequence[Row]) -> str:
    """Figures down, sizes across; what failed says why below."""
    sizes = [number_text(row[by]) for row in rows]
    figures = list(
        dict.fromkeys(name for row in rows for name in row if name not in (by, "failed"))
    )
    lines = [f"| {by} | " + " | ".join(sizes) + " |", "|---|" + "---:|" * len(rows)]
    lines += [
        f"| {name} | " + " | ".join(_text(row, name) for row in rows) + " |" for name in figures
    ]
    failures = [
        f"{number_text(row[by])} {by} failed: {row['failed']}" for row in rows if "failed" in row
    ]
    return "\n".join([*lines, *([""] if failures else []), *failures])


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    return "" if value is None else number_text(value)
