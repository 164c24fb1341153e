"""Carries out the episodes of a schedule."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from .cluster import Machine, World
from .schedule import (
    ADMIN,
    ANEW,
    CLOCK,
    FSYNC_ERROR,
    FULL_DISK,
    ISOLATE,
    KILL,
    LAST_TWO,
    LINK,
    LOSSY,
    ONE_WAY,
    PAUSE,
    POWER,
    RESET,
    SLOW,
    STOP,
    WIPE,
    Episode,
)
from .wire import pause

SUPERVISOR_S = 1.0
LEAVE_S = 3.0
"""Until a node that was killed has left the in-sync sets, and clients have written on."""
CLOCK_SKEW_MS_MAX = 1_800_000
"""Below `message.timestamp.after.max.ms`, or the node would rightly refuse the clients' records."""


class Faults:
    def __init__(
        self,
        world: World,
        rng: random.Random,
        clients: list[str],
        recovered: Callable[[], Awaitable[None]],
        admin: Callable[[], Awaitable[None]],
        anew: Callable[[Machine, float], Awaitable[None]],
    ) -> None:
        self.world = world
        self.rng = rng
        self.clients = clients
        self._recovered = recovered
        self._admin = admin
        self._anew = anew

    async def run(self, plan: list[Episode]) -> None:
        for episode in plan:
            if episode.after_recovery:
                await self._recovered()
            self.world.trace.say("fault", str(episode))
            await self._strike(episode)
            await pause(episode.pause_s)

    async def supervise(self) -> None:
        """Look after the nodes, as the machines' supervisors do, until the run is over."""
        while True:
            await pause(SUPERVISOR_S)
            for machine in self.world.machines.values():
                machine.supervise()

    async def heal(self) -> None:
        """All machines on, all links good, all disks well."""
        self.world.trace.say("fault", "all is healed")
        self.world.network.heal()
        for machine in self.world.machines.values():
            machine.disk.full = 0.0
            machine.disk.fsync_fails = 0
            machine.resume()
            if not machine.up:
                machine.start()

    # -- one episode ---------------------------------------------------------------------------

    async def _strike(self, episode: Episode) -> None:
        machines = [self.world.machines[v] for v in episode.victims]
        kind, seconds = episode.kind, episode.lasts_s
        if kind in (KILL, POWER, WIPE, STOP, FSYNC_ERROR):
            await self._down(kind, machines, seconds)
        elif kind == LAST_TWO:
            await self._last_two(*machines, seconds)
        elif kind == ANEW:
            await self._anew(machines[0], seconds)
        elif kind == PAUSE:
            for machine in machines:
                if machine.up:
                    machine.pause()
            await pause(seconds)
            for machine in machines:
                machine.resume()
        elif kind == CLOCK:
            machines[0].clock.skew_ms = self.rng.randint(-CLOCK_SKEW_MS_MAX, CLOCK_SKEW_MS_MAX)
        elif kind == FULL_DISK:
            machines[0].disk.full = self.rng.choice((0.3, 1.0))
            await pause(seconds)
            machines[0].disk.full = 0.0
        elif kind == RESET:
            self.world.network.reset_all(machines[0].name)
        elif kind == ADMIN:
            await self._admin()
        else:
            self._disturb(kind, [m.name for m in machines])
            await pause(seconds)
            self.world.network.heal()

    async def _down(self, kind: str, machines: list[Machine], seconds: float) -> None:
        for machine in machines:
            if not machine.up:
                continue
            if kind == STOP:
                await machine.stop()
            elif kind == FSYNC_ERROR:
                machine.disk.fsync_fails = self.rng.randint(1, 3)
                await pause(seconds / 2)
                machine.disk.fsync_fails = 0
                if machine.up:
                    machine.crash(power=False)
            else:
                machine.crash(power=kind == POWER)
                if kind == WIPE:
                    machine.wipe()
        await pause(seconds)
        for machine in machines:
            if not machine.up:
                machine.start()

    async def _last_two(
        self, away: Machine, weak: Machine, strong: Machine, seconds: float
    ) -> None:
        """`strong` comes back last, and may be the only one that has what was acknowledged."""
        _crash(away, power=False)
        await pause(LEAVE_S)
        _crash(weak, power=True)
        _crash(strong, power=False)
        for machine in (away, weak):
            if not machine.up:
                machine.start()
        await pause(seconds)
        if not strong.up:
            strong.start()

    def _disturb(self, kind: str, victims: list[str]) -> None:
        network, rng = self.world.network, self.rng
        others = [m.name for m in self.world.machines.values() if m.name not in victims]
        peers = others + (self.clients if rng.random() < 0.5 else [])
        if kind == LOSSY:
            loss = rng.uniform(0.02, 0.3)
            everyone = victims + others + self.clients
            for a in everyone:
                for b in everyone:
                    if a != b:
                        network.change(a, b, loss=loss)
            return
        way = rng.randrange(3) if kind in (ONE_WAY, LINK, SLOW) else 2
        if kind == LINK:
            peers = [rng.choice(others or self.clients)]
        how = {"delay_s": rng.uniform(0.02, 0.5)} if kind == SLOW else {"cut": True}
        assert kind in (ISOLATE, ONE_WAY, LINK, SLOW)
        if kind == ONE_WAY:
            way = rng.randrange(2)
        for victim in victims:
            for peer in peers or self.clients:
                if way in (0, 2):
                    network.change(victim, peer, **how)
                if way in (1, 2):
                    network.change(peer, victim, **how)


def _crash(machine: Machine, *, power: bool) -> None:
    if machine.up:
        machine.crash(power=power)
