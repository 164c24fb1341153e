"""A bounded number of seeds, the same seed twice, and bugs that the checks must find.

`python -m tests.sim.cluster` runs more; `make sim SEEDS=n` as many as you like.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .txn_mutants import TXN_MUTANTS

ROOT = Path(__file__).resolve().parents[3]
CLUSTERS, SINGLES, TRANSACTIONAL, SINGLE_TRANSACTIONAL = 14, 16, 8, 5
"""Seeds of one test; each takes one to four seconds of processor time."""
MINUTES_MAX = 1.0
"""Where the machine is slow, fewer seeds run."""
FOUND_WITHIN_SEEDS = 60


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sim.cluster", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("nodes", "first", "seeds"),
    [(3, CLUSTERS * i, CLUSTERS) for i in range(2)] + [(1, 0, SINGLES)],
)
def test_seeds(nodes: int, first: int, seeds: int) -> None:
    which = ("--nodes", str(nodes), "--from", str(first), "--seeds", str(seeds))
    done = simulate(*which, "--minutes", str(MINUTES_MAX))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("nodes", "first"), [(3, TRANSACTIONAL * i) for i in range(2)] + [(1, 0)])
def test_seeds_with_transactions(nodes: int, first: int) -> None:
    seeds = TRANSACTIONAL if nodes > 1 else SINGLE_TRANSACTIONAL
    which = ("--nodes", str(nodes), "--from", str(first), "--seeds", str(seeds), "--transactions")
    done = simulate(*which, "--minutes", str(MINUTES_MAX))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [(), ("--transactions",)], ids=["plain", "transactions"])
def test_a_seed_gives_the_same_run_twice(how: tuple[str, ...]) -> None:
    """Whatever the hashes of strings are."""
    runs = [simulate("--seed", "8", "--any-hash", *how, hash_seed=h) for h in ("1", "77")]
    digests = [re.findall(r"digest ([0-9a-f]+)", run.stdout) for run in runs]
    assert digests[0] == digests[1] != [], runs[0].stdout + runs[1].stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mutant", "nodes", "first"),
    [
        ("no-fsync", 1, 0),
        ("forgetful-sequences", 1, 14),
        ("watermark-of-the-leader-alone", 3, 10),
        ("answers-before-commit", 3, 4),
        ("aborted-reads", 3, 1),
        ("precommitted-reads", 3, 0),
        ("stable-before-committed", 3, 0),
        ("torn-transactions", 3, 6),
        ("offsets-before-the-end", 3, 7),
        ("zombies-commit", 3, 2),
        ("zombies-write", 3, 1),
        ("markers-are-not-resumed", 3, 21),
        ("repeated-ends-end-the-next", 3, 10),
        ("leaders-alone-know-what-was-aborted", 3, 1),
    ],
)
def test_a_bug_is_found(mutant: str, nodes: int, first: int) -> None:
    """`first` is a seed that found it soon when it was chosen; if it no longer does, others may."""
    done = simulate(
        "--mutant", mutant, "--nodes", str(nodes),
        "--from", str(first), "--seeds", str(FOUND_WITHIN_SEEDS),
        "--until-failure", *["--transactions"] * (mutant in TXN_MUTANTS),
    )  # fmt: skip
    assert done.returncode == 1, f"nobody noticed {mutant}"
    assert "FAILED: " in done.stdout
