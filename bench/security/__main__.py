"""`make bench-security`: what security costs, in one run of about ten minutes.

Parts: TLS beside Apache Kafka with the same TLS and beside a node without (rounds, as in
`bench.peers`); ACLs, a node with and one without in short turns; storms of wrong passwords; memory
of idle connections. Results go to build/bench: security.json (every single value, written after
each part) and security.md. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.peers.__main__ import told_of
from bench.peers.figures import OURS, Results
from bench.peers.rounds import Plan, Progress, run_rounds
from bench.run import OUT, machine
from bench.scale.nodes import allow_files

from penstock.cli.bench.broker import touch_memory
from penstock.cli.values import parse_size

from . import beside, idle, storms, variants
from .table import page

BESIDE, FEATURES, STORMS, IDLE = PARTS = ("tls", "features", "storms", "idle")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds beside Kafka (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="per case (default 1)")
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        help="only this part; may be given several times",
    )
    parser.add_argument("--dir", type=Path, default=None, help="where servers keep their data")
    parser.add_argument("--out", type=Path, default=OUT, help="where the results go")
    parser.add_argument(
        "--touch-memory",
        default="6G",
        metavar="SIZE",
        help="memory to write to at first, as in bench.peers (default 6G)",
    )
    return parser.parse_args()


def note_peers(results: Results) -> None:
    """Who the columns are."""
    for kind in beside.KINDS:
        missing = kind.missing()
        results.peers[kind.name] = told_of(kind, missing)
        if missing:
            print(f"{kind.name} is missing: {missing}", file=sys.stderr)
    for name in variants.NAMES:
        results.peers[name] = dict(results.peers[OURS])


def run(wanted: argparse.Namespace, folder: Path, results: Results) -> None:
    chosen = wanted.only or PARTS
    files = allow_files()
    kinds = [kind for kind in beside.KINDS if not results.missing(kind.name)]
    steps = {
        BESIDE: wanted.runs * len(kinds) * len(beside.CHOSEN),
        FEATURES: variants.STEPS,
        STORMS: storms.STEPS,
        IDLE: idle.STEPS,
    }
    progress = Progress(sum(steps[part] for part in chosen))

    def tls() -> None:
        plan = Plan(kinds, beside.CHOSEN, wanted.runs, wanted.seconds, folder)
        run_rounds(plan, results, progress, lambda _: write(results, wanted.out))

    def features() -> None:
        for comparison in variants.COMPARISONS:
            variants.compare(comparison, folder, wanted.seconds, results, progress)

    parts: dict[str, Callable[[], None]] = {
        BESIDE: tls,
        FEATURES: features,
        STORMS: lambda: storms.measure(folder, wanted.seconds, results, progress),
        IDLE: lambda: idle.measure(folder, files, results, progress),
    }
    for part in chosen:
        parts[part]()
        write(results, wanted.out)


def write(results: Results, out: Path) -> None:
    results.write(out / "security.json")
    (out / "security.md").write_text(page(results))


def main() -> None:
    wanted = options()
    # So that a run which is told to stop stops its servers, too; Ctrl-C does by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    results = Results(machine(), wanted.seconds)
    note_peers(results)
    wanted.out.mkdir(parents=True, exist_ok=True)
    touch_memory(parse_size(wanted.touch_memory))
    busy = os.getloadavg()[0]
    print(f"{machine()}; load average {busy:.2f} before the start", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="penstock-security-", dir=wanted.dir) as folder:
        run(wanted, Path(folder), results)
    print((wanted.out / "security.md").read_text())


if __name__ == "__main__":
    main()
