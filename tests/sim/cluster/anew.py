"""Replicas that leave a node and are made anew there; then the node is killed or loses power.

A replica leaves by a reassignment and comes back by the next, or its topic is deleted and made
again with the same name. What a node still has on its disk of the first replica (a directory to be
removed, offsets in checkpoints) is then older than the second. Chance alone seldom strikes while
that is so: here the crash waits until the new replica has something to lose.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.base.ids import Uuid
from penstock.partitions.partition import Partition
from penstock.peers.errors import PeerError

from .admin import Admin
from .checks import History
from .clients import Producer
from .cluster import Machine, World
from .observer import partitions_of
from .wire import Wire, pause

LOOK_S = 0.01
PATIENCE_S = 5.0
"""How long is waited for what faults may prevent."""
GROWS_S = (0.0, 0.0, 0.02, 0.1, 0.5)
"""How long a new replica grows before the crash."""
TWICE = 0.8
"""How likely a replica moves twice: then the first has seen several leaders, and is flushed."""
WRITTEN_S = 0.3
"""How long clients write to it in between."""
POWER = 0.4
"""How likely the node loses power, and is not just killed."""
AGAIN = "again"
WRITE_PAUSE_S = 0.02
WRITTEN_MIN = 20
"""How many records a topic has before it is deleted."""


class Anew:
    def __init__(self, world: World, admin: Admin, wire: Wire, rng: random.Random) -> None:
        self.world = world
        self.admin = admin
        self.wire = wire
        """Of the client that writes to the topic that is made again."""
        self.rng = rng

    async def strike(self, victim: Machine, seconds: float) -> None:
        """`seconds` says how long a replica is away, and the node after it."""
        if not victim.serving:
            return
        how = self.rng.choice((self._moved, self._moved, self._moved, self._remade))
        try:
            grows = await how(victim, seconds / 4)
        except PeerError as e:
            self.world.trace.say("anew", str(e))
            grows = False
        if grows:
            await pause(self.rng.choice(GROWS_S))
        if victim.up:
            if grows:
                self.world.paths.reach("crashed with a new replica")
            victim.crash(power=self.rng.random() < POWER)
        await pause(seconds / 4)
        if not victim.up:
            victim.start()

    async def _moved(self, victim: Machine, away_s: float) -> bool:
        """A replica goes to other nodes, and comes back; whether it grows again."""
        replica = self._chosen(victim)
        if replica is None:
            return False
        if self.rng.random() < TWICE:
            await self._away_and_back(victim, replica, away_s)
            await pause(WRITTEN_S)
            await self._restarted(victim, replica)
        return await self._away_and_back(victim, replica, away_s)

    async def _away_and_back(self, victim: Machine, replica: Partition, away_s: float) -> bool:
        """Others lead the partition meanwhile, in a new epoch."""
        topic, index = replica.topic, replica.index
        before = _found(victim, topic, index) or replica
        # To be anew as long as it was, it has to copy what several leaders have written.
        enough = self.rng.choice((0, before.log.log_end_offset - 1, before.log.log_end_offset - 1))
        others = [node for node in self.world.machines if node != victim.id]
        self.rng.shuffle(others)
        told = await self.admin.reassign(topic, index, others[:3])
        self.world.trace.say("anew", f"{victim.name} goes: {told}")
        await self._until(lambda: victim.serving and _found(victim, topic, index) is None)
        await pause(away_s)
        told = await self.admin.reassign(topic, index, [*others[:2], victim.id])
        self.world.trace.say("anew", f"{victim.name} comes back: {told}")
        return await self._until(
            lambda: (
                (found := _found(victim, topic, index)) is not None
                and found is not before
                and found.log.log_end_offset > max(enough, found.log.log_start_offset)
            )
        )

    async def _restarted(self, victim: Machine, replica: Partition) -> None:
        """Cleanly: the checkpoints then have the end of each log, and stay so for a while."""
        if victim.up:
            await victim.stop()
        if not victim.up:
            victim.start()
        await self._until(lambda: _found(victim, replica.topic, replica.index) is not None)

    def _chosen(self, victim: Machine) -> Partition | None:
        """Rather one that has a past: something flushed, under more than one leader."""
        replicas = [replica for replica in partitions_of(victim) if replica.topic != AGAIN]
        old = [r for r in replicas if r.log.recovery_point and len(r.log.epochs.entries) > 1]
        return self.rng.choice(old or replicas) if replicas else None

    async def _remade(self, victim: Machine, away_s: float) -> bool:
        """A topic is deleted, and made again; whether its replica on the victim grows again."""
        told = await self.admin.create(AGAIN, 1)
        self.world.trace.say("anew", f"first {told}")
        rng = self.world.random(AGAIN)
        producer = Producer(self.wire, History(), self.world.trace, rng, AGAIN, 0, idempotent=False)
        process = self.world.process(self.wire.name)
        writing = self.world.spawn(process, producer.run(WRITE_PAUSE_S))
        try:
            return await self._made_again(victim, away_s, producer)
        finally:
            producer.stopping = True
            await writing

    async def _made_again(self, victim: Machine, away_s: float, producer: Producer) -> bool:
        await self._until(lambda: producer.sent >= WRITTEN_MIN)
        first = self._id(victim)
        told = await self.admin.delete(AGAIN)
        self.world.trace.say("anew", f"deleted {told}")
        await pause(away_s)
        told = await self.admin.create(AGAIN, 1)
        self.world.trace.say("anew", f"again {told}")
        return await self._until(
            lambda: (
                (found := _found(victim, AGAIN, 0)) is not None
                and found.topic_id != first
                and found.log.log_end_offset > 0
            )
        )

    def _id(self, victim: Machine) -> Uuid | None:
        found = _found(victim, AGAIN, 0)
        return None if found is None else found.topic_id

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for it for a while; whether it came."""
        give_up = self.world.loop.time() + PATIENCE_S
        while not condition() and self.world.loop.time() < give_up:
            await pause(LOOK_S)
        return condition()


def _found(machine: Machine, topic: str, index: int) -> Partition | None:
    for partition in partitions_of(machine):
        if partition.topic == topic and partition.index == index:
            return partition
    return None
