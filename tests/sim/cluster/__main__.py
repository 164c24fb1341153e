"""Runs seeds: `python -m tests.sim.cluster --seeds N [--from S]`, or one: `--seed X -v`.

With `--transactions` the clients are those of `txn_run`, with `--shares` those of `share_run`:
another run of the same seed. With `--paths` it is an error, too, when a path of `paths` was not
taken by any seed. `--mutants all`, or some of them by name, puts bugs into the product, one after
the other, and each must be found.
Each seed runs in a child process of its own, since a run takes over the modules it uses. A seed
that fails is printed with the end of its trace and the command that runs it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import pickle
import re
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from .mutants import FOUND_FROM, FOUND_WITHIN_SEEDS, MUTANTS, of_the_day
from .patches import import_all
from .paths import expected
from .share_mutants import SHARE_MUTANTS
from .txn_mutants import TXN_MUTANTS

if TYPE_CHECKING:
    from .run import Run

LINES_SHOWN = 60
SEED_S_MAX = 600
"""A run that takes longer does not end: where it is is printed."""
EXACTLY = {"PYTHONHASHSEED": "0"}


def main() -> int:
    options = _options()
    if (
        any(os.environ.get(name) != value for name, value in EXACTLY.items())
        and not options.any_hash
    ):
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim.cluster", *sys.argv[1:]],
                  {**os.environ, **EXACTLY})  # fmt: skip
    if options.seed is not None:
        return _one(options)
    if options.mutants is not None:
        return _mutants(options.mutants)
    return _many(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first (0)")
    parser.add_argument("--seed", type=int, help="run just this one")
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cluster (3)")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first that fails")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at the same time (1)")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--transactions", action="store_true", help="with transactional clients")
    kinds.add_argument("--shares", action="store_true", help="with share groups")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what happens")
    parser.add_argument("--record", help="write every event into this file")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="put this bug into the product")
    parser.add_argument("--mutants", help="see that these bugs are found: all, today, or names")
    parser.add_argument("--paths", action="store_true", help="see that all paths are taken")
    parser.add_argument("--any-hash", action="store_true", help="leave PYTHONHASHSEED as it is")
    return parser.parse_args()


def _mutate(options: argparse.Namespace) -> None:
    if options.mutant:
        MUTANTS[options.mutant]()


def _kind_name(options: argparse.Namespace) -> str:
    return "transactions" if options.transactions else "shares" if options.shares else "plain"


def _kind(options: argparse.Namespace) -> type[Run]:
    from .run import Run
    from .share_run import ShareRun
    from .txn_run import TransactionRun

    kinds = {"plain": Run, "transactions": TransactionRun, "shares": ShareRun}
    return kinds[_kind_name(options)]


def _one(options: argparse.Namespace) -> int:
    faulthandler.dump_traceback_later(SEED_S_MAX, exit=True)
    import_all()
    kind = _kind(options)
    _mutate(options)
    run = kind(options.seed, options.nodes)
    if options.verbose:
        run.world.trace.echo = print
    if options.record:
        with Path(options.record).open("w") as file:
            run.world.trace.record = lambda line: print(line, file=file)
            result = run.execute()
    else:
        result = run.execute()
    print(
        f"seed {result.seed}: digest {result.digest}, {result.virtual_s:.1f} s in "
        f"{result.real_s:.1f} s, {result.turns} turns, {result.events} events, "
        f"{result.acknowledged} acknowledged, {result.read} read, {result.commits} commits"
        f"{result.note}"
    )
    print(_told(result.paths))
    if result.failure is not None:
        if not options.verbose:
            print("\n".join(result.lines[-LINES_SHOWN:]))
        print(f"FAILED: {result.failure}")
    sys.stdout.flush()
    # No destructor of what the run left behind may run: it could close what is not its own.
    os._exit(1 if result.failure is not None else 0)


def _many(options: argparse.Namespace) -> int:
    import_all()  # once for all children, and before anybody else imports Penstock
    kind = _kind(options)
    _mutate(options)
    started = time.monotonic()
    running: dict[int, tuple[int, int]] = {}
    failed: list[int] = []
    seeds = iter(range(options.first, options.first + options.seeds))
    done = 0
    paths: Counter[str] = Counter()
    while True:
        late = options.minutes and time.monotonic() - started > options.minutes * 60
        enough = late or (failed and options.until_failure)
        while len(running) < options.jobs and not enough:
            seed = next(seeds, None)
            if seed is None:
                break
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                _child(kind, seed, options.nodes, writer)
            os.close(writer)
            running[pid] = (seed, reader)
        if not running:
            break
        seed, text, taken = _reap(running)
        done += 1
        paths.update(taken)
        if text:
            failed.append(seed)
            more = "--transactions " * options.transactions + "--shares " * options.shares
            print(f"\nseed {seed} FAILED\n{text}\nagain: python -m tests.sim.cluster "
                  f"{more}--nodes {options.nodes} --seed {seed} -v\n", flush=True)  # fmt: skip
        if done % 20 == 0:
            _progress(done, failed, started)
    _progress(done, failed, started)
    print(_told(paths))
    wanted = expected(_kind_name(options), options.nodes, done) if options.paths else set()
    missed = sorted(wanted - paths.keys())
    if missed:
        print(f"NOT TAKEN by any of {done} seeds: {', '.join(missed)}")
    return 1 if failed or missed else 0


def _mutants(which: str) -> int:
    names = {"all": list(MUTANTS), "today": of_the_day()}.get(which) or which.split(",")
    missed = [name for name in names if not _is_found(name)]
    print(f"{len(names)} bugs, {len(missed)} not found: {missed}")
    return 1 if missed else 0


def _is_found(mutant: str) -> bool:
    """Whether the checks find a bug."""
    nodes, first = FOUND_FROM.get(mutant, (3, 0))
    command = [
        sys.executable, "-m", "tests.sim.cluster", "--mutant", mutant, "--nodes", str(nodes),
        "--from", str(first), "--seeds", str(FOUND_WITHIN_SEEDS), "--until-failure",
        *["--transactions"] * (mutant in TXN_MUTANTS), *["--shares"] * (mutant in SHARE_MUTANTS),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall("^FAILED: .*", done.stdout, re.MULTILINE)
    seeds = re.findall(r"^(\d+) seeds", done.stdout, re.MULTILINE)
    print(f"{mutant}: {found[:1] or done.stderr[-2000:]} after {seeds[-1:]} seeds", flush=True)
    return done.returncode == 1 and bool(found)


def _child(kind: type[Run], seed: int, nodes: int, writer: int) -> None:
    faulthandler.dump_traceback_later(SEED_S_MAX, exit=True)
    text, paths = "", Counter[str]()
    try:
        result = kind(seed, nodes).execute()
        paths = result.paths
        if result.failure is not None:
            text = "\n".join([*result.lines[-LINES_SHOWN:], f"FAILED: {result.failure}"])
    except BaseException as e:
        text = f"the simulator itself failed: {e!r}"
    with os.fdopen(writer, "wb") as pipe:
        pickle.dump((text, paths), pipe)
    os._exit(0)


def _reap(running: dict[int, tuple[int, int]]) -> tuple[int, str, Counter[str]]:
    """Wait for a child to be done; its seed, what went wrong, and the paths it took."""
    readers = {reader: pid for pid, (_, reader) in running.items()}
    ready, _, _ = select.select(list(readers), [], [])
    pid = readers[ready[0]]
    seed, reader = running.pop(pid)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    text, paths = pickle.loads(data) if data else ("the process died", Counter())
    return seed, text, paths


def _told(paths: Counter[str]) -> str:
    return "paths: " + ", ".join(f"{path} {count}" for path, count in sorted(paths.items()))


def _progress(done: int, failed: list[int], started: float) -> None:
    minutes = (time.monotonic() - started) / 60
    note = f", {len(failed)} failed: {failed}" if failed else ""
    print(f"{done} seeds, {done / max(minutes, 1e-9):.0f} a minute{note}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
