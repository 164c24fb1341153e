"""`python -m tests.chaos.cluster --minutes 5`: a chaos run for a person who watches."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from .faults import FAULTS
from .run import Options, random_seed, run, say


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults go on")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run's choice of faults")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which, separated by commas")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--target", choices=("penstock", "kafka"), default="penstock")
    parser.add_argument("--network", choices=("auto", "namespaces", "proxy"), default="auto")
    parser.add_argument("--locked", action="store_true", help="with TLS, logins and ACLs")
    parser.add_argument("--dir", type=Path, default=None, help="keeps the nodes' folders here")
    given = parser.parse_args()
    faults = tuple(given.faults.split(","))
    if unknown := [name for name in faults if name not in FAULTS]:
        parser.error(f"no fault {unknown[0]}: there are {', '.join(FAULTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seed = random_seed() if given.seed is None else given.seed
    root = given.dir or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    options = Options(
        given.minutes * 60,
        seed,
        faults,
        given.nodes,
        given.target,
        given.network,
        live=sys.stdout.isatty(),
        locked=given.locked,
    )
    outcome = run(options, root)
    say(outcome.text)
    if outcome.violations:
        say(f"the nodes' folders are in {root}; `--seed {seed}` repeats the choice of faults")
        return 1
    if given.dir is None:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
