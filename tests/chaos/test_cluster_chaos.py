"""A short run of chaos on a whole cluster, as `make chaos` does for as long as one likes.

The choice of faults comes from a seed, which a failure prints; `PENSTOCK_CHAOS_SEED` repeats it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.cluster.history import Acked, Fault
from chaos.cluster.run import Options, random_seed, run

pytestmark = [pytest.mark.penstock_only, pytest.mark.slow, pytest.mark.timeout(400)]

SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED", random_seed()))
ACKED_MIN = 1_000


@pytest.mark.parametrize(
    ("seconds", "faults"),
    [
        (
            45,
            (
                "kill",
                "kill-leader",
                "kill-two",
                "pause",
                "cut",
                "cut-one-way",
                "restart",
                "reassign",
                "disk",
            ),
        ),
        (20, ("kill", "cut-link", "cut-off", "delay", "loss", "rolling", "elect")),
    ],
    ids=["the hard ones", "with a slow network"],
)
def test_chaos(tmp_path: Path, seconds: int, faults: tuple[str, ...]) -> None:
    outcome = run(Options(seconds, SEED, faults), tmp_path)
    print(outcome.text)
    assert outcome.violations == [], f"PENSTOCK_CHAOS_SEED={SEED}\n{outcome.text}"
    assert len(outcome.history.of(Acked)) > ACKED_MIN
    assert len(outcome.history.of(Fault)) >= 3
