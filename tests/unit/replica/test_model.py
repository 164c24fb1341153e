"""Replication at random: crashes, lost answers, late metadata, moved leaders."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.replica.model import World

STEPS = 400


@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 2))
@settings(max_examples=150, deadline=None)
def test_nothing_committed_is_lost(seed: int, replicas: int, min_insync: int) -> None:
    world = World(Random(seed), replicas, min_insync)
    for _ in range(STEPS):
        world.step()


@pytest.mark.parametrize("seed", range(20))
def test_all_replicas_agree_in_the_end(seed: int) -> None:
    world = World(Random(seed), 3, 2)
    for _ in range(STEPS):
        world.step()
    world.heal()
    leader = world.replicas[world.registration.leader]
    assert set(world.registration.isr) == {0, 1, 2}
    assert len(leader.log.records) == leader.high_watermark == len(world.committed)
    for replica in world.replicas.values():
        assert replica.log.records == world.committed


def test_the_model_does_something() -> None:
    """The runs commit, move, cut and come back: else they would prove little."""
    worlds = [World(Random(seed), 3, 1) for seed in range(30)]
    for world in worlds:
        for _ in range(STEPS):
            world.step()
    assert sum(len(world.committed) for world in worlds) > 300
    assert sum(world.registration.leader_epoch for world in worlds) > 150
    assert sum(sum(world.epochs.values()) for world in worlds) > 100
