"""A simulated producer process: begins transactions, writes, ends them, asks again when in doubt.

Processes of one transactional id do not know of each other: an old one may come back from a pause
and go on. It stops for good when it is told that it is fenced or that what it does makes no sense
any more.

A request that has no answer is sent again. Processes of transactions version 1 are spared late
copies of their requests: nothing but the order of a connection protects them from those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.errors import ErrorCode
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.schema import Message
from sim.transactions.partition import Tag
from unit.coordinator.transaction.rig import add_request

if TYPE_CHECKING:
    from sim.transactions.simulation import Simulation

TIMEOUT_MS = 3_000
RETRY_MS = 300
LATER = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Process:
    def __init__(self, world: Simulation, name: str, transactional_id: str, speaks: int) -> None:
        self.world = world
        self.name = name
        self.transactional_id = transactional_id
        self.speaks = speaks
        self.alive = True
        self.paused_until = 0
        self.producer = (-1, -1)
        self.number = 0
        self.told: dict[Tag, bool] = {}
        self.asked = 0
        """Which request is waited for; answers to others come too late."""
        self._request: tuple[Message, int] | None = None
        self._left = 0
        self._partition = ""
        self._guard: object | None = None
        self._commit = True
        self._ask(self._init(), 5)

    @property
    def tag(self) -> Tag:
        return self.name, self.number

    # -- requests ------------------------------------------------------------------------------

    def _init(self) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
        )

    def _ask(self, request: Message, version: int) -> None:
        self._request = (request, version)
        self.asked += 1
        self._send(self.asked)

    def _send(self, asked: int) -> None:
        if asked != self.asked or self._request is None or not self.alive:
            return
        self.world.transmit(self, *self._request)
        self.world.wake(self, RETRY_MS, lambda: self._send(asked))

    def receive(self, response: Any, asked: int) -> None:
        if asked != self.asked or self._request is None:
            return
        code = self._code(response)
        if code in LATER:
            return  # the request is sent again when its time is up
        request, self._request = self._request[0], None
        if isinstance(request, InitProducerIdRequest):
            self._initialised(response, code)
        elif isinstance(request, EndTxnRequest):
            self._ended(response, code)
        else:
            self._added(code)

    def _code(self, response: Any) -> ErrorCode:
        if hasattr(response, "results_by_transaction"):
            topics = response.results_by_topic_v3_and_below or (
                response.results_by_transaction[0].topic_results
            )
            return ErrorCode(topics[0].results_by_partition[0].partition_error_code)
        return ErrorCode(response.error_code)

    # -- the life of a producer ----------------------------------------------------------------

    def _initialised(self, response: Any, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self.die()
            return
        self._became(response)
        self._begin()

    def _became(self, response: Any) -> None:
        self.producer = (response.producer_id, response.producer_epoch)
        self.world.owns(self)

    def _begin(self) -> None:
        self.number += 1
        self._left = self.world.chance.randint(0, 4)
        self._step()

    def _step(self) -> None:
        self.world.wake(self, self.world.chance.randint(0, 40), self._write_or_end)

    def _write_or_end(self) -> None:
        chance = self.world.chance
        if self._left == 0:
            self._commit = chance.random() < 0.7
            self._end()
            return
        self._left -= 1
        self._partition = chance.choice(list(self.world.partitions))
        self._guard = self.world.partitions[self._partition].guard(self.producer[0])
        version = 5 if self.speaks == 2 else 3
        self._ask(self.world.adding(self, self._partition, add_request, version), version)

    def _added(self, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self.die()
            return
        partition = self.world.partitions[self._partition]
        self.world.wake(
            self,
            self.world.chance.randint(0, 20),
            lambda: self._wrote(partition.write(*self.producer, self.tag, self._guard)),
        )

    def _wrote(self, done: bool) -> None:
        if done:
            self._step()
        else:
            self._left = 0
            self._commit = False
            self._end()

    def _end(self) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=self._commit,
        )
        self._ask(request, 5 if self.speaks == 2 else 4)

    def _ended(self, response: Any, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.told[self.tag] = self._commit
            if self.speaks == 2:
                self._became(response)
            self._begin()
        elif code is ErrorCode.INVALID_TXN_STATE and self.world.chance.random() < 0.5:
            # Nothing was in it, or its time was up: go on with the next epoch (KIP-360).
            self._ask(self._init(), 5)
        elif code is ErrorCode.INVALID_TXN_STATE:
            self._begin()
        else:
            self.die()

    def die(self) -> None:
        self.alive = False
        self._request = None
