"""Some hundred seeds of the quorum's simulation, and mutants that it has to find.

A failing seed prints its trace; `PENSTOCK_SIM_SEED=n` runs that one alone,
`PENSTOCK_SIM_SEEDS=n` more.
"""

from __future__ import annotations

import os

import pytest

from penstock.base.errors import InvariantBroken
from sim.raft.checker import Violation
from sim.raft.mutants import MUTANTS
from sim.raft.simulation import Simulation

CHUNKS = 10
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "200"))
TURMOIL_EVERY = 8
TRACE_LINES = 80
MUTANT_SEEDS_MAX = 40


def simulation(seed: int) -> Simulation:
    return Simulation(seed, turmoil=seed % TURMOIL_EVERY == 0)


def run_seed(seed: int) -> Simulation:
    run = simulation(seed)
    try:
        run.run()
    except Exception as e:
        trace = "\n".join(run.world.trace[-TRACE_LINES:])
        pytest.fail(f"seed {seed}: {type(e).__name__}: {e}\n{trace}", pytrace=False)
    return run


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int) -> None:
    only = os.environ.get("PENSTOCK_SIM_SEED")
    if only is not None:
        run_seed(int(only))
        return
    for seed in range(chunk, SEEDS, CHUNKS):
        run_seed(seed)


def test_a_seed_replays_exactly() -> None:
    assert run_seed(7).world.trace == run_seed(7).world.trace


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, attribute, value in MUTANTS[name]:
        monkeypatch.setattr(where, attribute, value)
    for seed in range(MUTANT_SEEDS_MAX):
        try:
            simulation(seed).run()
        except (Violation, InvariantBroken):
            return
    pytest.fail(f"{MUTANT_SEEDS_MAX} seeds did not find a core that {name}")
