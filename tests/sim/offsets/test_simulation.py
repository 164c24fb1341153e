"""Some hundred seeds of the simulation of offsets.

A failing seed prints its trace; `PENSTOCK_SIM_SEED=n` runs that one alone,
`PENSTOCK_SIM_SEEDS=n` more.
"""

from __future__ import annotations

import os

import pytest

from sim.offsets.simulation import Simulation

CHUNKS = 10
SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "300"))
STEPS = 60
TRACE_LINES = 60


def run_seed(seed: int) -> None:
    simulation = Simulation(seed)
    try:
        simulation.run(STEPS)
    except Exception as e:
        trace = "\n".join(simulation.trace[-TRACE_LINES:])
        pytest.fail(f"seed {seed}: {type(e).__name__}: {e}\n{trace}", pytrace=False)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int) -> None:
    only = os.environ.get("PENSTOCK_SIM_SEED")
    if only is not None:
        run_seed(int(only))
        return
    for seed in range(chunk, SEEDS, CHUNKS):
        run_seed(seed)
