"""Faults that wait for their moment: between a decision and its markers, or within a question.

Chance alone seldom strikes a coordinator while it has told some partitions and not others, or a
leader while it asks the coordinator. Here somebody watches for that and strikes then, a few times
in a run: kills or pauses the node, or breaks all its connections. None of it loses data.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.coordinator.transaction.states import PREPARED

from .cluster import Machine, World
from .observer import partitions_of
from .wire import pause

LOOK_S = 0.003
STRIKES_MAX = 4
QUIET_S = 4.0


def decided(machine: Machine) -> bool:
    """Whether the node coordinates a transaction whose partitions are being told of its end."""
    broker = machine.node._broker  # type: ignore[union-attr]
    assert broker is not None
    return any(
        found.state in PREPARED
        for shard in broker.transactions._active_shards()
        for found in shard.transactions.values()
    )


def deciding(machine: Machine) -> bool:
    """Whether the node coordinates a transaction whose end is decided, but not yet committed."""
    drivers = machine.node._broker.transactions._drivers.values()  # type: ignore[union-attr]
    return decided(machine) and any(driver._uncommitted for driver in drivers)


def asking(machine: Machine) -> bool:
    """Whether the node has asked a coordinator for a transaction and waits for the answer."""
    return any(partition.log.producers.guards for partition in partitions_of(machine))


def told(machine: Machine) -> bool:
    """Whether a marker lies in a log of the node that is not committed yet."""
    return any(partition.log.producers.unreplicated for partition in partitions_of(machine))


MOMENTS: tuple[Callable[[Machine], bool], ...] = (decided, deciding, asking, told)


class Aim:
    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.stopping = False

    async def run(self) -> None:
        for _ in range(self.rng.randint(0, STRIKES_MAX)):
            moment = self.rng.choice(MOMENTS)
            await pause(self.rng.uniform(0.5, 2.0) * QUIET_S)
            victim = await self._wait(moment)
            if victim is None:
                return
            self.world.trace.say("aim", f"{moment.__name__}: {victim.name}")
            await self._strike(victim)

    async def _wait(self, moment: Callable[[Machine], bool]) -> Machine | None:
        while not self.stopping:
            machines = list(self.world.machines.values())
            if all(machine.well for machine in machines):
                found = [machine for machine in machines if moment(machine)]
                if found and self.rng.random() < 0.2:
                    return self.rng.choice(found)
            await pause(LOOK_S)
        return None

    async def _strike(self, victim: Machine) -> None:
        how = self.rng.randrange(4)
        if how == 0:
            self.world.network.reset_all(victim.name)
        elif how == 1:
            victim.pause()
            await pause(self.rng.choice((0.3, 3.0, 9.0)))
            victim.resume()
        else:
            victim.crash(power=False)
            await pause(self.rng.choice((0.1, 1.0, 4.0)))
            if not victim.up:
                victim.start()
