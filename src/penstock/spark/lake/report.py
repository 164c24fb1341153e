"""An audit for people and programs: a table on the terminal, JSON, and a page with a plot.

The page is one file without scripts: bars of rows per hour, as an SVG, and tables. What differs is
red.

Limits: the terminal shows `LINES_MAX` groups, those that differ first; the plot draws the last
`BARS_MAX` hours and the page lists `PAGE_ROWS_MAX` groups. The JSON has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import IO, Final

import msgspec
from rich.console import Console
from rich.table import Table as TextTable

from penstock.spark.errors import OptionError
from penstock.spark.lake.audit import ALL_PARTITIONS, Audit, Extent, Group, Place

LINES_MAX: Final = 40
BARS_MAX: Final = 24 * 31
PAGE_ROWS_MAX: Final = 5_000
BAR_WIDTH: Final = 14
PLOT_HEIGHT: Final = 160
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STYLE: Final = """
body { font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 60em; color: #222 }
table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: right }
tr.bad { background: #fdd } .good { color: #070 } .bad { color: #b00 }
.plot { overflow-x: auto } .rows { fill: #48a } .differs { fill: #c22 }
"""


def hour_text(hour: int) -> str:
    """An hour since 1970 as people write it; 0 stands for all hours together."""
    return (EPOCH + timedelta(hours=hour)).strftime("%Y-%m-%d %H:00") if hour else "all"


def part_text(partition: int) -> str:
    return "all" if partition == ALL_PARTITIONS else str(partition)


def verdict(audit: Audit) -> str:
    """The result in one sentence."""
    rows = sum(group.rows[0] for group in audit.groups)
    if audit.equal:
        return (
            f"{audit.left} and {audit.right} are equal: {rows} rows, checksums of"
            f" {len(audit.groups)} partitions and hours"
        )
    return (
        f"{audit.left} and {audit.right} differ in {len(audit.differing)} of"
        f" {len(audit.groups)} partitions and hours"
    )


def place_text(place: Place) -> str:
    return f"{place.what}: {place.side} partition {place.partition} offset {place.offset}"


def extent_text(extent: Extent) -> str:
    text = f"{extent.side} partition {extent.partition}: offsets {extent.first} to {extent.last}"
    if not extent.holes:
        return f"{text}, {extent.rows} rows"
    return (
        f"{text}, {extent.rows} rows, {extent.holes} offsets without a row (transaction markers,"
        " aborted or compacted records, or rows outside of the time)"
    )


def to_json(audit: Audit) -> str:
    found = {"equal": audit.equal, **msgspec.to_builtins(audit)}
    return msgspec.json.encode(found).decode()


def show(audit: Audit, print_as: str, file: IO[str] | None = None) -> None:
    """Prints an audit as text or JSON."""
    if print_as not in ("text", "json"):
        raise OptionError(f"print_as must be text or json, not {print_as!r}")
    console = Console(file=file, highlight=False, soft_wrap=True)
    if print_as == "json":
        console.print(to_json(audit), markup=False)
        return
    console.print(_text_table(audit))
    if len(audit.groups) > LINES_MAX:
        console.print(f"{len(audit.groups) - LINES_MAX} more are not shown", markup=False)
    for line in _lines(audit):
        console.print(line, markup=False)
    console.print(verdict(audit), style="green" if audit.equal else "bold red", markup=False)


def _lines(audit: Audit) -> Iterable[str]:
    yield from map(extent_text, audit.extents)
    yield from (f"note: {note}" for note in audit.notes)
    yield from map(place_text, audit.places)


def _text_table(audit: Audit) -> TextTable:
    table = TextTable("partition", "hour", audit.left, audit.right, "")
    first = sorted(audit.groups, key=lambda group: group.equal)[:LINES_MAX]
    for group in sorted(first, key=lambda group: (group.partition, group.hour)):
        table.add_row(*_cells(group), style=None if group.equal else "red")
    return table


def _cells(group: Group) -> tuple[str, str, str, str, str]:
    left, right = group.rows
    word = "equal" if group.equal else f"{right - left:+d} rows" if left != right else "changed"
    return part_text(group.partition), hour_text(group.hour), str(left), str(right), word


def write_page(audit: Audit, path: str) -> None:
    """Writes the page; an old one is replaced at once."""
    draft = Path(f"{path}.draft")
    draft.write_text(page(audit), encoding="utf-8")
    draft.replace(path)


def page(audit: Audit) -> str:
    title = escape(f"Audit of {audit.left} and {audit.right}")
    first = sorted(audit.groups, key=lambda group: group.equal)[:PAGE_ROWS_MAX]
    body = [
        f"<h1>{title}</h1>",
        f'<p class="{"good" if audit.equal else "bad"}">{escape(verdict(audit))}.</p>',
        _plot(audit.groups),
        _list(_lines(audit)),
        _page_table(audit, first),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _page_table(audit: Audit, groups: Sequence[Group]) -> str:
    heads = ("partition", "hour", audit.left, audit.right, "")
    rows = ["<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"]
    for group in groups:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(group))
        rows.append(f"<tr>{cells}</tr>" if group.equal else f'<tr class="bad">{cells}</tr>')
    return "<table>" + "\n".join(rows) + "</table>"


def _plot(groups: Sequence[Group]) -> str:
    """Rows per hour; of an hour that differs, the groups that do are drawn in red."""
    hours: dict[int, tuple[int, int]] = {}
    for group in groups:
        rows, bad = hours.get(group.hour, (0, 0))
        most = max(group.rows)
        hours[group.hour] = rows + most, bad + (0 if group.equal else most)
    drawn = sorted(hours.items())[-BARS_MAX:]
    tallest = max((rows for _, (rows, _) in drawn), default=1)
    bars = []
    for number, (hour, (rows, bad)) in enumerate(drawn):
        title = f"<title>{hour_text(hour)}: {rows} rows, {bad} in groups that differ</title>"
        bars.append(_bar("rows", number, rows / tallest, title))
        if bad:
            bars.append(_bar("differs", number, bad / tallest, title))
    width = BAR_WIDTH * max(len(drawn), 1)
    return (
        f'<div class="plot"><svg width="{width}" height="{PLOT_HEIGHT}" role="img"'
        f' aria-label="rows per hour">{"".join(bars)}</svg></div>'
    )


def _bar(kind: str, number: int, share: float, title: str) -> str:
    height = max(round(PLOT_HEIGHT * share), 1)
    return (
        f'<rect class="{kind}" x="{BAR_WIDTH * number}" y="{PLOT_HEIGHT - height}"'
        f' width="{BAR_WIDTH - 2}" height="{height}">{title}</rect>'
    )
