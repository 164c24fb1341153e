"""The cost of growth as SVG: one picture for each part, a panel for each kind of figure.

Needs matplotlib (the extra `bench`); without it the tables are all there is, and a line says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cluster.nodes import say

Row = Mapping[str, Any]

PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("seconds", ("_s",)),
    ("milliseconds", ("_ms", "_ms_each")),
    ("MB", ("_mb",)),
    ("bytes", ("bytes_each", "bytes_each_pair", "_bytes")),
    ("cores busy", ("cores",)),
)
"""What stands on an axis, and how the names of its figures end."""
NOT_DRAWN = ("case_s",)
PANEL_INCHES = (5.0, 3.6)


def draw(part: str, by: str, rows: Sequence[Row], out: Path) -> None:
    """Writes scale-PART.svg; nothing where fewer than two sizes were measured."""
    measured = [row for row in rows if "failed" not in row]
    if len(measured) < 2:
        return
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        say("no plots: matplotlib is not installed (pip install -e '.[bench]')")
        return
    panels = [(unit, found) for unit, ends in PANELS if (found := _figures(measured, ends))]
    width, height = PANEL_INCHES
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(width * len(panels), height), squeeze=False, layout="constrained"
    )
    for axis, (unit, names) in zip(axes[0], panels, strict=True):
        for name in names:
            points = [(row[by], row[name]) for row in measured if row.get(name)]
            if points:  # a logarithm has no place for nothing
                axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(xscale="log", yscale="log", xlabel=by, ylabel=unit)
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize="x-small")
    figure.suptitle(f"Penstock: {part}")
    figure.savefig(out / f"scale-{part.replace(' ', '-')}.svg")
    pyplot.close(figure)


def _figures(rows: Sequence[Row], ends: tuple[str, ...]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name.endswith(ends) and name not in NOT_DRAWN]
