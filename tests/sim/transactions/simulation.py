"""The simulated world: producers of several transactional ids, partitions, a coordinator that
crashes, and a network that loses, delays and doubles.

One seed decides everything. A run has two parts: trouble, then peace, at the end of which no
transaction may be open anywhere. What must hold throughout: a producer id and epoch belong to one
process; a transaction ends once, the same way in all its partitions, and as its producer was told;
a marker never comes before its decision; epochs never go back; the log alone rebuilds the shard.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.coordinator.effects import Caller, Reply
from penstock.coordinator.transaction import WriteMarkers
from penstock.coordinator.transaction.metadata import TransactionMetadata
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.schema import Message
from sim.transactions.coordinator import Coordinator
from sim.transactions.partition import Partition, Tag
from sim.transactions.process import TIMEOUT_MS, Process
from unit.coordinator.transaction.rig import partition as parsed

IDS = ("t0", "t1", "t2")
TROUBLE_MS = 15_000
PEACE_MS = 3 * TIMEOUT_MS
TROUBLE_EVERY_MS = 250
NEARLY_USED_UP = 32_760


class Simulation:
    """One run; `run` raises AssertionError or InvariantBroken with the step it broke in."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0
        self.steps = 0
        self.loss = self.chance.choice([0.0, 0.02, 0.1])
        self.peace = False
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._tokens = itertools.count(1)
        self._asked: dict[int, tuple[Process, int]] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._names = itertools.count()
        self.outcomes: dict[Tag, bool] = {}
        self.partitions = {n: Partition(n, self.outcomes) for n in ("a-0", "a-1", "b-0")}
        self.coordinator = Coordinator(self.chance, self._deliver, self._send_markers, self.after)
        for number, id_ in enumerate(IDS):
            if self.chance.random() < 0.4:
                old = TransactionMetadata(id_, number + 1, NEARLY_USED_UP, last_update_ms=0)
                self.coordinator.begin_with(old)
        self.processes: list[Process] = []
        for id_ in IDS:
            self._start(id_)

    def run(self) -> None:
        self.after(TROUBLE_EVERY_MS, self._trouble)
        self._run_until(TROUBLE_MS)
        self.peace, self.loss = True, 0.0
        if not self.coordinator.up:
            self.coordinator.restart(self.now)
        for process in self.processes:
            process.die()
        self._run_until(TROUBLE_MS + PEACE_MS)
        self._check_peace()

    def _run_until(self, end: int) -> None:
        while True:
            due = self._queue[0][0] if self._queue else end
            timer = self.coordinator.next_timer()
            moment = min(due, end if timer is None else timer)
            if moment >= end:
                self.now = end
                return
            self.now = max(self.now, moment)
            self.steps += 1
            if timer is not None and timer <= self.now:
                self.coordinator.fire(self.now)
            else:
                heapq.heappop(self._queue)[2]()

    # -- the network ---------------------------------------------------------------------------

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._order), what))

    def wake(self, process: Process, delay_ms: int, what: Callable[[], None]) -> None:
        """After a while the process does this, unless it is dead by then; a pause holds it up."""

        def due() -> None:
            if self.now < process.paused_until:
                self.after(process.paused_until - self.now, due)
            elif process.alive:
                what()

        self.after(delay_ms, due)

    def transmit(self, process: Process, request: Message, version: int) -> None:
        asked = process.asked
        orderly = process.speaks == 1
        copies = 1 if orderly else 1 + (self.chance.random() < self.loss)
        for _ in range(copies):
            if orderly or self.chance.random() >= self.loss:
                late = not orderly and self.chance.random() < self.loss
                delay = self.chance.randint(0, 2_000 if late else 20)
                self.after(delay, lambda: self._arrive(process, asked, request, version))

    def _arrive(self, process: Process, asked: int, request: Message, version: int) -> None:
        if self.coordinator.up:
            token = next(self._tokens)
            self._asked[token] = (process, asked)
            caller = Caller(token, version, process.name, "/127.0.0.1")
            self.coordinator.handle(request, caller, self.now)

    def _deliver(self, replies: list[Reply]) -> None:
        for token, response in replies:
            process, asked = self._asked.pop(token)
            if process.speaks == 1 or self.chance.random() >= self.loss:
                receive = partial(process.receive, response, asked)
                self.wake(process, self.chance.randint(0, 20), receive)

    def _send_markers(self, action: WriteMarkers) -> None:
        waiting = {str(name) for name in action.partitions}

        def written(name: str) -> None:
            if self.partitions[name].end(action):
                waiting.discard(name)
                if not waiting:
                    self.coordinator.markers_written(action, self.now)

        for name in sorted(waiting):
            late = self.chance.random() < self.loss
            delay = self.chance.randint(0, 3_000 if late else 30)
            self.after(delay, partial(written, name))

    def adding(self, process: Process, name: str, make: Callable[..., Any], version: int) -> Any:
        place = parsed(name)
        return make(
            version,
            AddPartitionsToTxnTransaction(
                transactional_id=process.transactional_id,
                producer_id=process.producer[0],
                producer_epoch=process.producer[1],
                topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
            ),
        )

    # -- trouble -------------------------------------------------------------------------------

    def _start(self, id_: str) -> None:
        name = f"{id_}#{next(self._names)}"
        speaks = self.chance.choice([1, 2, 2])
        self.processes.append(Process(self, name, id_, speaks))

    def _trouble(self) -> None:
        if self.peace:
            return
        kinds = {
            self._start_another: 5,
            self._kill: 3,
            self._pause: 3,
            self._crash: 2,
            self._expire: 1,
            self.coordinator_checked: 2,
        }
        self.chance.choices(list(kinds), weights=list(kinds.values()))[0]()
        self.after(self.chance.randint(1, 2 * TROUBLE_EVERY_MS), self._trouble)

    def _living(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    def _start_another(self) -> None:
        """Whether or not there is one already."""
        self._start(self.chance.choice(IDS))

    def _kill(self) -> None:
        if self._living():
            self.chance.choice(self._living()).die()

    def _pause(self) -> None:
        """Sometimes for longer than a transaction may take."""
        if self._living():
            process = self.chance.choice(self._living())
            process.paused_until = self.now + self.chance.randint(1, 2 * TIMEOUT_MS)

    def _crash(self) -> None:
        if self.coordinator.up:
            self.coordinator.check_replay()
            self.coordinator.crash()
            self._asked.clear()
            self.after(self.chance.randint(1, 1_000), self._coordinator_back)

    def _coordinator_back(self) -> None:
        if not self.coordinator.up:
            self.coordinator.restart(self.now)

    def _expire(self) -> None:
        self.coordinator.expire(self.now)

    def coordinator_checked(self) -> None:
        if self.coordinator.up:
            self.coordinator.check_replay()

    # -- what must hold ------------------------------------------------------------------------

    def owns(self, process: Process) -> None:
        """Nobody else has been given this producer id and epoch."""
        owner = self._owners.setdefault(process.producer, process.name)
        assert owner == process.name, f"{process.producer} is {owner}'s and {process.name}'s"

    def _check_peace(self) -> None:
        self.coordinator.check_replay()
        for partition in self.partitions.values():
            assert not partition.unfinished, f"{partition.unfinished} hang in {partition.name}"
        for metadata in self.coordinator.shard.transactions.values():
            assert not metadata.partitions, f"{metadata} is not over"
        for process in self.processes:
            for tag, committed in process.told.items():
                assert self.outcomes.get(tag, committed) == committed, f"{tag} was told otherwise"

    @property
    def ended(self) -> tuple[int, int]:
        """How many transactions with writes were committed and aborted."""
        committed = sum(self.outcomes.values())
        return committed, len(self.outcomes) - committed
