"""Large groups: work grows with the number of members, not with its square."""

from __future__ import annotations

import time

from penstock.coordinator.classic import State
from unit.coordinator_classic.rig import Rig, subscription


def rebalance_seconds(count: int, topics: int) -> float:
    """How long a group of `count` members takes to join and sync once more."""
    rig = Rig(group_initial_rebalance_delay_ms=0)
    rig.checked = False
    meta = {"range": subscription([f"topic-{n}" for n in range(topics)])}
    for number in range(count):
        rig.join(version=3, client=f"m{number}", protocols=meta)
    rig.advance(0)
    ids = list(rig.group.roster.members)
    assignments = dict.fromkeys(ids, bytes(80))
    rig.sync(ids[0], assignments)
    began = time.thread_time()
    for member_id in ids:
        rig.join(member_id, protocols=meta)
    for member_id in ids[1:]:
        rig.sync(member_id)
    rig.sync(ids[0], assignments)
    took = time.thread_time() - began
    assert rig.group.state is State.STABLE
    assert rig.group.generation == 2
    return took


def test_a_rebalance_of_100_members_is_cheap() -> None:
    assert rebalance_seconds(100, 10) < 0.5


def test_ten_times_the_members_cost_about_ten_times_as_much() -> None:
    small = min(rebalance_seconds(200, 1) for _ in range(3))
    large = min(rebalance_seconds(2_000, 1) for _ in range(2))
    assert large < 30 * small, f"{large:.3f} s against {small:.3f} s"
