"""A short run of chaos on a whole cluster, as `make chaos` does for as long as one likes.

The choice of faults comes from a seed, which a failure prints; `PENSTOCK_CHAOS_SEED` repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.cluster.history import Acked, Ended, Fault
from chaos.cluster.run import Options, random_seed, run
from chaos.cluster.workload import Plan

pytestmark = [pytest.mark.penstock_only, pytest.mark.slow, pytest.mark.timeout(400)]

SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED", random_seed()))
ACKED_MIN = 1_000


TRANSACTIONS_MIN = 50
PLAIN, TRANSACTIONAL = Plan(writers=0, chains=0), Plan()


@pytest.mark.parametrize(
    ("seconds", "plan", "faults", "locked"),
    [
        (
            45,
            PLAIN,
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
            False,
        ),
        (20, PLAIN, ("kill", "cut-link", "cut-off", "delay", "loss", "rolling", "elect"), None),
        (
            18,
            TRANSACTIONAL,
            ("worker-kill", "worker-zombie", "kill", "pause", "cut", "restart", "certificate"),
            None,
        ),
        (25, PLAIN, ("certificate", "kill", "kill-leader", "pause", "cut", "restart"), True),
    ],
    ids=["the hard ones", "with a slow network", "with transactions", "locked"],
)
def test_chaos(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    seconds: int,
    plan: Plan,
    faults: tuple[str, ...],
    locked: bool | None,
) -> None:
    """`locked`: with TLS, logins and ACLs; None: by the seed."""
    record_property("PENSTOCK_CHAOS_SEED", SEED)
    locked = bool(SEED % 2) if locked is None else locked
    outcome = run(Options(seconds, SEED, faults, plan=plan, locked=locked), tmp_path)
    print(outcome.text)
    assert outcome.violations == [], f"PENSTOCK_CHAOS_SEED={SEED}\n{outcome.text}"
    assert len(outcome.history.of(Acked)) > ACKED_MIN
    assert len(outcome.history.of(Fault)) >= 2
    if plan is TRANSACTIONAL:
        assert sum(ended.committed for ended in outcome.history.of(Ended)) > TRANSACTIONS_MIN
