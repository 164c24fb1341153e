"""Disks that take seconds to sync: a quorum that has lost its leader gets another all the same.

The real driver handles one event after the other, and what an event has to write comes before the
next one: a voter whose disk is slow answers nobody meanwhile, and who has waited for too long hangs
up. Here replicas do the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

import pytest

from penstock.raft.effects import Effect, Send, WriteState
from penstock.raft.quorum import Quorum
from penstock.raft.types import QuorumConfig
from penstock.wire.schema import Message
from sim.raft.checker import Checker
from sim.raft.replica import Back, SimReplica
from sim.raft.world import World

FORMED_MS = 8_000
WITHIN_MS, WITHIN_SYNCS = 5_000, 20
"""An election takes so long, and as many times as the disk takes."""
SEEDS = 5


class SlowReplica(SimReplica):
    """Writes its state in `sync_ms`, and does nothing else meanwhile."""

    def __init__(self, node_id: int, config: QuorumConfig, world: World, checker: Checker) -> None:
        super().__init__(node_id, config, world, checker)
        self.sync_ms = 0
        self._busy = False
        self._inbox: deque[Callable[[], None]] = deque()
        self._given_up: set[object] = set()

    def do(self, call: Callable[[Quorum], list[Effect]]) -> None:
        if self._busy:
            self._inbox.append(lambda: self.do(call))
        elif self.quorum is not None:
            self._go_on(deque(call(self.quorum)))

    def serve(self, request: Message, back: Back, listener: str = "") -> None:
        if self._busy:
            self._inbox.append(lambda: super(SlowReplica, self).serve(request, back, listener))
        else:
            super().serve(request, back, listener)

    def _go_on(self, effects: deque[Effect]) -> None:
        while effects:
            effect = effects.popleft()
            self.perform([effect])
            if isinstance(effect, WriteState) and self.sync_ms:
                self._busy = True
                self.later(self.sync_ms, lambda: self._synced(effects))
                return
        if self.quorum is not None:
            self.high_watermark = self.quorum.high_watermark
            self._answer_parked()
            self._schedule_tick()

    def _answer_parked(self) -> None:
        if not self._busy:
            super()._answer_parked()

    def _synced(self, effects: deque[Effect]) -> None:
        self._busy = False
        if self.quorum is not None:
            self.quorum.on_state_written(self.sync_ms)
        self._go_on(effects)
        while self._inbox and not self._busy:
            self._inbox.popleft()()

    def _response(self, life: int, send: Send, response: Message) -> None:
        """One that comes after the time-out comes on a connection that is closed."""
        if send.token in self._given_up:
            return
        self._given_up.add(send.token)
        super()._response(life, send, response)

    def _send(self, effect: Send) -> None:
        super()._send(effect)
        self.later(effect.timeout_ms, lambda: self._timed_out(effect))

    def _timed_out(self, send: Send) -> None:
        if send.token not in self._given_up:
            self._given_up.add(send.token)
            self.do(lambda q: q.on_failed(send.token, self.now_ms))

    PERFORM: ClassVar = {**SimReplica.PERFORM, Send: _send}


def formed(seed: int) -> tuple[World, Checker, list[SlowReplica]]:
    world, checker = World(seed), Checker()
    servers = tuple((f"n{i}", 9092) for i in (1, 2, 3))
    replicas = [
        SlowReplica(
            i,
            QuorumConfig("c", bootstrap_servers=servers, auto_join=True, founder=i == 1),
            world,
            checker,
        )
        for i in (1, 2, 3)
    ]
    for replica in replicas:
        replica.peers = list(replicas)
    for replica in replicas:
        replica.start()
    world.run_until(world.now_ms + FORMED_MS)
    return world, checker, replicas


@pytest.mark.parametrize("sync_ms", [10, 700, 1_000, 2_000, 5_000])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_another_leader_is_elected(seed: int, sync_ms: int) -> None:
    world, checker, replicas = formed(seed)
    (leader,) = [r for r in replicas if r.quorum is not None and r.quorum.is_leader]
    assert leader.quorum is not None
    assert len(leader.quorum.voters) == len(replicas)
    for replica in replicas:
        replica.sync_ms = sync_ms
    committed = checker.committed_end
    leader.crash()
    world.run_until(world.now_ms + WITHIN_MS + WITHIN_SYNCS * sync_ms)
    assert checker.committed_end > committed, "\n".join(world.trace[-40:])
