"""Runs the simulation over many seeds; `PENSTOCK_SIM_SEED=N` replays one."""

from __future__ import annotations

import os

import pytest

from penstock.base.errors import InvariantBroken
from sim.classic.simulation import Simulation

SEEDS = 500
PER_TEST = 50
CHOSEN = os.environ.get("PENSTOCK_SIM_SEED")
STARTS = [int(CHOSEN)] if CHOSEN else list(range(0, SEEDS, PER_TEST))


@pytest.mark.parametrize("start", STARTS)
def test_members_share_the_partitions_whatever_happens(start: int) -> None:
    for seed in range(start, start + (1 if CHOSEN else PER_TEST)):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except (AssertionError, InvariantBroken) as broken:
            raise AssertionError(
                f"seed {seed} broke at {simulation.now} ms in step {simulation.steps}: {broken}"
                f" (replay it with PENSTOCK_SIM_SEED={seed})"
            ) from broken
