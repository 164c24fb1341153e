"""`make bench-scale`: how far one machine goes, and what it costs as it grows.

Each case is a part at one size, with nodes of its own, which are gone afterwards; sizes rise until
the largest or until one fails, which is recorded with its reason. Results go to
build/bench/scale.md, scale.json and scale-*.svg. Run it on a machine that does nothing else; the
load average before each case is noted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.cluster.nodes import say
from bench.run import OUT, machine

from . import connections, failover, full, partitions
from .nodes import allow_files
from .plots import draw
from .table import tables

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A measurement and the sizes at which it is made; `by` names the size in a row."""

    name: str
    run: Callable[[Path, int, float], Row]
    by: str
    sizes: tuple[int, ...]


TO_10K = (1_000, 3_000, 10_000)
TO_100K = (*TO_10K, 30_000, 100_000)
PARTS = (
    Part("partitions", partial(partitions.many, per_topic=10), "partitions", TO_100K),
    Part("topics", partial(partitions.many, per_topic=1), "topics", TO_10K),
    Part("one topic", partitions.one_topic, "partitions", TO_10K),
    Part("three nodes", failover.three_nodes, "partitions", (*TO_10K, 30_000, 100_000)),
    Part("active connections", connections.active, "producers", TO_10K),
    Part("idle connections", connections.idle, "connections", TO_100K),
    Part("a full node", full.full, "files", (1_000, 20_000)),
)


def run(part: Part, sizes: list[int], seconds: float, folder: str | None) -> list[Row]:
    """The rows of a part; the first size that fails is the last."""
    rows: list[Row] = []
    for size in sizes:
        busy = round(os.getloadavg()[0], 2)
        say(f"{part.name}: {size:,} (load {busy})")
        began = time.perf_counter()
        row: Row = {part.by: size}
        try:
            with tempfile.TemporaryDirectory(prefix="penstock-scale-", dir=folder) as root:
                row |= part.run(Path(root), size, seconds)
        except Exception as e:
            say(traceback.format_exc())
            row["failed"] = f"{type(e).__name__}: {str(e)[:500]}"
        row |= {"load_before": busy, "case_s": round(time.perf_counter() - began, 1)}
        say(json.dumps(row))
        rows.append(row)
        if "failed" in row:
            break
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--only", default="", help="only parts whose name contains this text")
    parser.add_argument("--min", type=int, default=0, help="no size below this")
    parser.add_argument("--max", type=int, default=100_000, help="no size above this")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="length of a look at idle nodes, and the time between two messages of a producer",
    )
    parser.add_argument("--dir", default=None, help="where nodes keep their data")
    parser.add_argument("--out", type=Path, default=OUT, help="where the results go")
    given = parser.parse_args()
    chosen = [part for part in PARTS if given.only in part.name]
    if not chosen:
        raise SystemExit(f"no part has {given.only!r} in its name")
    # Told to end, it takes its nodes down first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    files = allow_files()
    results: dict[str, list[Row]] = {}
    given.out.mkdir(parents=True, exist_ok=True)
    for part in chosen:
        sizes = [size for size in part.sizes if given.min <= size <= given.max] or [given.max]
        results[part.name] = run(part, sizes, given.seconds, given.dir)
        # After each part, so that a run that is cut short leaves what it has found.
        record = {"machine": machine(), "open_files_max": files, "parts": results}
        (given.out / "scale.json").write_text(json.dumps(record, indent=2) + "\n")
        table = tables({p.name: (p.by, results[p.name]) for p in chosen if p.name in results})
        head = f"{machine()}; a process may open {files:,} files."
        (given.out / "scale.md").write_text(f"{head}\n\n{table}\n")
        draw(part.name, part.by, results[part.name], given.out)
    print((given.out / "scale.md").read_text())


if __name__ == "__main__":
    main()
