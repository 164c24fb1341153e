"""peers-*.svg: how many times better Penstock is than each peer, with the range of the rounds.

Where less is better, the ratio is turned over: right of 1 Penstock is ahead, in every plot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .figures import OURS, Results, Spread
from .workloads import CPU, Metric, Workload

ROW_INCHES = 0.42
WIDTH_INCHES = 10.0
MARGIN_INCHES = 1.6
SPREAD_OF_PEERS = 0.7
"""How much of a row's height its peers share."""
TICKS = (1.0, 2.0, 5.0)
SPAN_OF_FEW_TICKS = 1_000.0
"""From this ratio of its ends on, an axis has a tick per power of ten only."""


class Row(NamedTuple):
    workload: str
    metric: Metric

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (self.workload, self.metric.label)))


def advantage(ratio: Spread, metric: Metric) -> Spread:
    """Above 1 where Penstock is better."""
    if metric.higher_is_better:
        return ratio
    return Spread(1 / ratio.median, 1 / ratio.high, 1 / ratio.low)


def draw_all(results: Results, workloads: Sequence[Workload], folder: Path) -> list[Path]:
    """Draws what there is to compare; the files that were written."""
    rows = [Row(w.name, metric) for w in workloads for metric in w.metrics]
    sections = {workload.name: workload.section for workload in workloads}
    latency = {"end to end"}
    resources = {"start and memory"}
    cluster = {name for name in sections.values() if name.startswith("cluster")}

    def of(names: Iterable[str]) -> list[Row]:
        return [row for row in rows if sections[row.workload] in names]

    speed = [
        row
        for row in rows
        if row.metric.unit == "messages/s" and sections[row.workload] not in cluster
    ]
    times = [*of(latency), *(row for row in rows if row.metric.key.startswith("ack_p"))]
    needs = [*of(resources), *(row for row in rows if row.metric == CPU)]
    plots = (
        ("throughput", "Messages per second", speed),
        ("latency", "Latency", times),
        ("resources", "Start, memory and processor time", needs),
        ("cluster", "Three nodes, three copies, acks=all", of(cluster)),
    )
    written = []
    for name, title, chosen in plots:
        path = folder / f"peers-{name}.svg"
        if _draw(results, title, chosen, path):
            written.append(path)
    return written


def _draw(results: Results, title: str, rows: Sequence[Row], path: Path) -> bool:
    """One plot; False when nothing can be compared."""
    peers = [name for name in results.peers if name != OURS]
    found = {
        (row, peer): advantage(ratio, row.metric)
        for row in rows
        for peer in peers
        if (ratio := results.ratio(row.workload, peer, row.metric.key)) and ratio.low > 0
    }
    shown = [row for row in rows if any((row, peer) in found for peer in peers)]
    if not shown:
        return False
    mpl.rcParams["svg.hashsalt"] = path.name  # the same picture is the same file
    figure = Figure(
        figsize=(WIDTH_INCHES, MARGIN_INCHES + ROW_INCHES * len(shown)), layout="constrained"
    )
    axes = figure.add_subplot()
    for place, peer in enumerate(peers):
        points = [(at, found[row, peer]) for at, row in enumerate(shown) if (row, peer) in found]
        if points:
            shift = SPREAD_OF_PEERS * ((place + 0.5) / len(peers) - 0.5)
            _points(axes, peer, [(at + shift, spread) for at, spread in points])
    _dress(axes, title, [row.label for row in shown])
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    return True


def _points(axes: Axes, peer: str, points: Sequence[tuple[float, Spread]]) -> None:
    """One peer's medians, and lines for their ranges."""
    axes.errorbar(
        [spread.median for _, spread in points],
        [at for at, _ in points],
        xerr=[
            [spread.median - spread.low for _, spread in points],
            [spread.high - spread.median for _, spread in points],
        ],
        fmt="o",
        markersize=4,
        linewidth=1.2,
        label=peer,
    )


def _dress(axes: Axes, title: str, labels: Sequence[str]) -> None:
    for at in range(0, len(labels), 2):
        axes.axhspan(at - 0.5, at + 0.5, color="black", alpha=0.04, linewidth=0)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = TICKS if high / low < SPAN_OF_FEW_TICKS else TICKS[:1]
    axes.xaxis.set_major_locator(LogLocator(subs=ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title(title)
    axes.set_xlabel("how many times better Penstock is: median and range of the rounds")
