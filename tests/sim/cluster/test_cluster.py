"""A bounded number of seeds, the same seed twice, and bugs that the checks must find.

Each kind of run has its number of seeds, all of which must run, and the paths that they must take
(`paths`). `python -m tests.sim.cluster` runs more; `make sim SEEDS=n` as many as you like, and all
bugs instead of those of the day.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .mutants import A_DAY, MUTANTS, of_the_day

ROOT = Path(__file__).resolve().parents[3]
SEEDS = {
    "clusters": (20, ()),
    "single nodes": (12, ("--nodes", "1")),
    "transactions": (10, ("--transactions",)),
    "transactions of one node": (4, ("--nodes", "1", "--transactions")),
    "share groups": (5, ("--shares",)),
    "share groups of one node": (3, ("--nodes", "1", "--shares")),
}
"""How many of each kind; one takes two to four seconds of processor time. ADR 12 names the sum.
"""
SEEDS_IN_ALL = 54


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.cluster", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


def test_as_many_seeds_run_as_is_said() -> None:
    assert sum(seeds for seeds, _ in SEEDS.values()) == SEEDS_IN_ALL
    assert f"{SEEDS_IN_ALL} seeds" in (ROOT / "docs/adr/0012-simulate-whole-nodes.md").read_text()


@pytest.mark.compiled  # in half of the time; `make sim` runs them against the sources
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", SEEDS)
def test_seeds(kind: str) -> None:
    """Nothing is broken, all seeds have run, and together they took the paths they should."""
    seeds, how = SEEDS[kind]
    done = simulate(*how, "--seeds", str(seeds), "--paths")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert re.findall(r"^(\d+) seeds, ", done.stdout, re.MULTILINE)[-1] == str(seeds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "how",
    [(), ("--transactions",), ("--shares", "--nodes", "1")],
    ids=["plain", "transactions", "share groups"],
)
def test_a_seed_gives_the_same_run_twice(how: tuple[str, ...]) -> None:
    """Whatever the hashes of strings are."""
    runs = [simulate("--seed", "8", "--any-hash", *how, hash_seed=h) for h in ("1", "77")]
    digests = [re.findall(r"digest ([0-9a-f]+)", run.stdout) for run in runs]
    assert digests[0] == digests[1] != [], runs[0].stdout + runs[1].stdout
    assert [run.returncode for run in runs] == [0, 0], runs[0].stdout


@pytest.mark.uncompiled  # bugs are put into the sources
@pytest.mark.timeout(900)
@pytest.mark.parametrize("turn", range(A_DAY))
def test_the_bugs_of_the_day_are_found(turn: int) -> None:
    """Every bug has its day; `make sim` looks for all of them."""
    done = simulate("--mutants", of_the_day()[turn])
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_bug_has_its_day() -> None:
    days = -(-len(MUTANTS) // A_DAY)
    for first in (0, 739_000):
        assert {name for day in range(days) for name in of_the_day(first + day)} == set(MUTANTS)
