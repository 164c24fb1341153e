"""The simulated world: processes, a network that loses and delays, a coordinator that crashes.

One seed decides everything. A run has two parts: trouble (processes are killed, paused, restarted,
leave, change their minds; messages get lost or come twice; the coordinator crashes), then peace, at
the end of which all living processes must share the partitions in one generation.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from penstock.coordinator.effects import Caller, Reply
from penstock.wire.schema import Message
from sim.classic.coordinator import REBALANCE_MS, SESSION_MS, Coordinator
from sim.classic.member import PARTITIONS, Member

TROUBLE_MS = 60_000
PEACE_MS = 3 * (REBALANCE_MS + SESSION_MS)
TROUBLE_EVERY_MS = 700


class Simulation:
    """One run; `run` raises AssertionError or InvariantBroken with the step it broke in."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0
        self.steps = 0
        self.coordinator = Coordinator(self.chance)
        self.loss = self.chance.choice([0.0, 0.02, 0.1])
        self.peace = False
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._tokens = itertools.count(1)
        self._asked: dict[int, tuple[Member, int]] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._highest: dict[str, int] = {}
        self._last_joined: dict[str, tuple[Member, int, int]] = {}
        self._ghosts: list[Member] = []
        self.members = [self._member(n) for n in range(self.chance.randint(2, 6))]

    def _member(self, number: int) -> Member:
        static = self.chance.random() < 0.4
        version = self.chance.choice([0, 3, 4, 5, 9]) if not static else self.chance.choice([5, 9])
        return Member(self, f"m{number}", f"static{number}" if static else None, version)

    def run(self) -> None:
        for member in self.members:
            self.after(self.chance.randint(0, 2_000), member.start)
        self.after(TROUBLE_EVERY_MS, self._trouble)
        self._run_until(TROUBLE_MS)
        self.peace, self.loss = True, 0.0
        if not self.coordinator.up:
            self.coordinator.restart(self.now)
        for member in self.members:
            if not member.alive and self.chance.random() < 0.7:
                member.start()
        self._run_until(TROUBLE_MS + PEACE_MS)
        self._check_peace()

    def _run_until(self, end: int) -> None:
        while True:
            due = self._queue[0][0] if self._queue else end
            timer = self.coordinator.next_event()
            moment = min(due, end if timer is None else timer)
            if moment >= end:
                self.now = end
                return
            self.now = max(self.now, moment)
            self.steps += 1
            if timer is not None and timer <= self.now:
                self._deliver(self.coordinator.run_until(self.now))
            else:
                heapq.heappop(self._queue)[2]()

    # -- the network ---------------------------------------------------------------------------

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._order), what))

    def transmit(self, member: Member, request: Message, version: int) -> None:
        life = member.life
        named = bool(getattr(request, "member_id", ""))
        copies = 1 + (named and self.chance.random() < self.loss / 2)
        for _ in range(copies):
            if self.chance.random() >= self.loss:
                delay = self.chance.randint(0, 20)
                self.after(delay, lambda: self._arrive(member, life, request, version))

    def _arrive(self, member: Member, life: int, request: Message, version: int) -> None:
        if not self.coordinator.up:
            return
        if member.instance is not None and not getattr(request, "member_id", " "):
            self._last_joined[member.instance] = (member, member.starts, self.coordinator.crashes)
        token = next(self._tokens)
        self._asked[token] = (member, life)
        caller = Caller(token, version, member.name, "/127.0.0.1")
        self._deliver(self.coordinator.handle(request, caller, self.now))

    def _deliver(self, replies: list[Reply]) -> None:
        for token, response in replies:
            member, life = self._asked.pop(token)
            if self.chance.random() >= self.loss:
                self.after(
                    self.chance.randint(0, 20),
                    lambda m=member, at=life, r=response: self._reach(m, at, r),
                )

    def _reach(self, member: Member, life: int, response: Message) -> None:
        if self.now < member.paused_until:
            self.after(member.paused_until - self.now, lambda: self._reach(member, life, response))
        elif member.alive and member.life == life:
            member.receive(response)

    def wake(self, member: Member, delay_ms: int, what: str) -> None:
        life = member.life

        def due() -> None:
            if self.now < member.paused_until:
                self.after(member.paused_until - self.now, due)
            elif member.alive and member.life == life:
                member.due(what)

        self.after(delay_ms, due)

    # -- trouble -------------------------------------------------------------------------------

    def _trouble(self) -> None:
        if self.peace:
            return
        member = self.chance.choice(self.members)
        kinds = {
            self._kill: 2,
            self._pause: 2,
            self._stall: 2,
            self._start_again: 6,
            self._leave: 1,
            self._change: 1,
            self._double: 1,
            self._crash: 1,
        }
        self.chance.choices(list(kinds), weights=list(kinds.values()))[0](member)
        self.after(self.chance.randint(1, 2 * TROUBLE_EVERY_MS), self._trouble)

    def _kill(self, member: Member) -> None:
        member.kill()

    def _pause(self, member: Member) -> None:
        """Sometimes for longer than the group is ready to wait."""
        member.paused_until = self.now + self.chance.randint(1, 2 * SESSION_MS)

    def _stall(self, member: Member) -> None:
        """Its heartbeats go on, but it neither joins nor syncs."""
        member.stalled_until = self.now + self.chance.randint(1, 2 * REBALANCE_MS)

    def _start_again(self, member: Member) -> None:
        if not member.alive:
            member.start()

    def _double(self, member: Member) -> None:
        """A static member is started although its old process still lives somewhere."""
        if member.is_settled and member.instance is not None:
            self._ghosts.append(member.ghost())
            member.start()

    def _leave(self, member: Member) -> None:
        if member.alive:
            member.leave()

    def _change(self, member: Member) -> None:
        """Another subscription: the member joins again with it."""
        member.topics = [self.chance.choice("abc")]
        if member.is_settled:
            member.join()

    def _crash(self, member: Member) -> None:
        if self.coordinator.up:
            self.coordinator.crash()
            self._asked.clear()
            self.after(self.chance.randint(1, 2_000), self._coordinator_back)

    def _coordinator_back(self) -> None:
        if not self.coordinator.up:
            self.coordinator.restart(self.now)

    # -- what must hold ------------------------------------------------------------------------

    def owns(self, member: Member, generation: int, partitions: frozenset[int]) -> None:
        """Nobody else owns them in this generation, under whatever coordinator."""
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member.name)
            assert owner == member.name, (
                f"partition {partition} belongs to {owner} and {member.name} in {generation}"
            )
        assert generation >= self._highest.get(member.name, 0), f"{member.name} went back"
        self._highest[member.name] = generation

    def fenced(self, member: Member) -> None:
        """Only a process that came later may take the place of a static member.

        A coordinator that crashes before the generation is written knows the process before it.
        """
        assert member.instance is not None
        this = (member, member.starts, self.coordinator.crashes)
        assert self._last_joined[member.instance] != this, f"{member.name} was fenced by nobody"

    def _check_peace(self) -> None:
        group = self.coordinator.group
        living = [m for m in self.members + self._ghosts if m.alive]
        for member in living:
            assert member.is_settled, f"{member.name} never came to rest"
            assert member.generation == group.generation, f"{member.name} is left behind"
        if not living:
            assert group.state_name == "Empty", f"nobody lives in a {group.state_name} group"
            return
        assert group.state_name == "Stable"
        assert {m.member_id for m in living} == group.roster.members.keys()
        owned = sorted(p for m in living for p in m.owned or ())
        assert owned == list(PARTITIONS), f"{owned} are owned"
