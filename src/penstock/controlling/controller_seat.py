"""Holds the active controller while this node leads the quorum.

A decision's records become one batch of the log; its response waits until they are committed and
applied. When the leadership is lost, the controller is dropped, and responses that wait for records
fail with NOT_CONTROLLER: the next leader decides whether those are committed.

One decision is made at a time. A large one is made in turns, with other work of the node in
between: its records are decided, encoded, appended (at once, as one batch) and applied to the
controller's image before the next one begins. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps, at_once
from penstock.config.layers import BrokerSettings
from penstock.controlling.active_controller import ActiveController
from penstock.controlling.committed_metadata import Decided
from penstock.metadata.controller import Controller, Deciding
from penstock.metadata.image import MetadataImage, Partition
from penstock.metadata.records import MetadataRecord, PartitionRecord, encode_record
from penstock.metadata.token_control import TokenRules
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.net.turn import in_turns
from penstock.raft.effects import BecameLeader

if TYPE_CHECKING:
    from penstock.controlling.quorum_driver import QuorumDriver

logger = logging.getLogger("penstock.controlling")

R = TypeVar("R")


class ControllerSeat:
    def __init__(self, driver: QuorumDriver, settings: BrokerSettings, rng: Rng) -> None:
        self.active: ActiveController | None = None
        self.cluster_id = ""
        self._driver = driver
        self.settings = settings
        self._rng = rng
        self.tokens = TokenRules.of(settings.config)
        """What the settings say about delegation tokens; without a key there are none."""
        self.first_records: Callable[[], Awaitable[list[MetadataRecord]]] = _none
        """What a new cluster is to begin with, besides what every one has."""
        self._led: BecameLeader | None = None
        self._deciding = asyncio.Lock()
        """Held while a decision is made, until the controller's image has its records."""
        # (end offset, waiter) of what is appended and not yet committed.
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    # -- leadership ----------------------------------------------------------------------------

    def became_leader(self, led: BecameLeader) -> None:
        self._led = led

    def applied(self, offset: int) -> None:
        """Everything below `offset` is committed and in the served image."""
        waiters = self._waiters
        while waiters and waiters[0][0] <= offset:
            _, waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        led = self._led
        if led is not None and self.active is None and offset > led.start_offset:
            self._activate(led.epoch)

    def _activate(self, epoch: int) -> None:
        driver = self._driver
        config = self.settings.config
        controller = Controller(
            driver.metadata.image.copy(),
            self.settings,
            config.node_id,
            self._rng,
            cluster_id=self.cluster_id,
            now_ms=driver.now_ms(),
            voters=lambda: [key.id for key in driver.quorum.voters.keys],
            tokens=lambda: self.tokens,
        )
        self.active = ActiveController(
            controller,
            config.node_id,
            driver.peers.ways.brokers,
            driver.now_ms,
            driver.wall_ms,
            self.submit,
        )
        logger.info("this node is the active controller", extra={"epoch": epoch})
        self.active.start()
        driver.notify_of_change()

    def lost(self) -> None:
        """The leadership is over."""
        self._led = None
        self._driver.metadata.decided.clear()
        if self.active is not None:
            self.active.drop()
            self.active = None
            logger.info("this node is no longer the active controller")
            self._driver.notify_of_change()
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(self._unavailable())
                waiter.exception()  # mark it as retrieved: the waiting task may have been cancelled

    def _unavailable(self) -> ApiError:
        if self._driver.failure is not None:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._driver.failure)
        return ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")

    # -- decisions -----------------------------------------------------------------------------

    async def submit(self, decide: Callable[[Controller], Deciding[R]]) -> R:
        """Make a decision, and give its response when its records are committed."""
        async with self._deciding:
            await self._driver.until_idle()
            active = self.active
            if active is None or self._driver.failure is not None:
                raise self._unavailable()
            if not active.bootstrapped:
                await self._bootstrap(active)
            decision = decide(active.controller)
            if not isinstance(decision, tuple):
                decision = await in_turns(decision, own=True)
            records, response = decision
            committed: asyncio.Future[None] | None
            if records:
                committed = await self._append(active, records)
            else:
                # A response that only reads may still rest on records that are not committed.
                committed = self._waiters[-1][1] if self._waiters else None
            active.arm()
        if committed is not None:
            # A waiter that is cancelled must not cancel others that wait for the same records.
            await asyncio.shield(committed)
        return response

    async def _bootstrap(self, active: ActiveController) -> None:
        """The first records of a new cluster come before every decision."""
        records, _ = active.controller.bootstrap()
        if records:
            await self._append(active, [*records, *await self.first_records()])
        active.bootstrapped = True

    async def _append(
        self, active: ActiveController, records: list[MetadataRecord]
    ) -> asyncio.Future[None]:
        """Append the records and apply them to the controller's image; what is returned is done
        when they are committed.
        """
        image = active.controller.image
        values, made = await in_turns(_prepared(records, image), own=True)
        await self._driver.until_idle()  # others may have had a turn
        if self.active is not active or self._driver.failure is not None:
            raise self._unavailable()
        now_ms = self._driver.now_ms()
        append = self._driver.append(values)
        self._driver.metadata.decided[append.first] = Decided(
            append.last + 1, records, len(append.batches), now_ms, made
        )
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((append.last + 1, committed))
        applying = active.controller.replay(records, made)
        try:
            await in_turns(applying, own=True)
        finally:
            at_once(applying)  # whoever waits may be cancelled, but the records are in the log
        return committed


async def _none() -> list[MetadataRecord]:
    return []


def _prepared(
    records: list[MetadataRecord], image: MetadataImage
) -> Steps[tuple[list[bytes], list[Partition]]]:
    """The records encoded, and the partitions that they make."""
    values: list[bytes] = []
    made: list[Partition] = []
    for record in records:
        values.append(encode_record(record, image.metadata_version))
        if isinstance(record, PartitionRecord):
            made.append(image.partition_of(record))
        if len(values) % ELEMENTS_PER_STEP == 0:
            yield
    return values, made
