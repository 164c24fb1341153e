"""Runs the simulation over many seeds; `PENSTOCK_SIM_SEED=N` replays one."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from penstock.base.errors import InvariantBroken
from sim.transactions.mutants import MUTANTS
from sim.transactions.simulation import Simulation

SEEDS = 150
PER_TEST = 25
MUTANT_SEEDS = 100
CHOSEN = os.environ.get("PENSTOCK_SIM_SEED")
STARTS = [int(CHOSEN)] if CHOSEN else list(range(0, SEEDS, PER_TEST))


@pytest.mark.parametrize("start", STARTS)
def test_every_transaction_ends_once_whatever_happens(start: int) -> None:
    committed = aborted = 0
    for seed in range(start, start + (1 if CHOSEN else PER_TEST)):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except (AssertionError, InvariantBroken) as broken:
            raise AssertionError(
                f"seed {seed} broke at {simulation.now} ms in step {simulation.steps}: {broken}"
                f" (replay it with PENSTOCK_SIM_SEED={seed})"
            ) from broken
        committed += simulation.ended[0]
        aborted += simulation.ended[1]
    assert committed
    assert aborted


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mistakes_are_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            Simulation(seed).run()
        except (AssertionError, InvariantBroken):
            return
    pytest.fail(f"{mutant.__doc__} Nobody noticed.")
