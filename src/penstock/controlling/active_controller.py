"""The active controller on the event loop: its deadlines, and the quick way to notice a death.

It is made when the node has become the leader of the metadata quorum and its epoch's first record
is committed, on a copy of the committed image, and is dropped with the leadership.

When a broker's connection breaks, and at the start for every broker that has not sent a heartbeat,
the controller tries to connect to it: if nothing listens there, the broker is fenced immediately.
In all other cases it waits for the session to end.

After the loop was blocked (by a huge request, or a pause of the machine) timers and tasks run
before the sockets are read, so heartbeats that arrived meanwhile are not known yet. Therefore a
timer of the controller runs every `CHECK_INTERVAL_MS`; the time by which it is late is not counted
as silence of the brokers. The rest counts: on a loop that is always slow sessions last longer, but
they end. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from penstock.base.endpoints import choose
from penstock.base.errors import ApiError
from penstock.metadata.controller import Controller, Deciding, Decision
from penstock.metadata.image import Broker
from penstock.metadata.liveness import EndedSession
from penstock.peers.connection import Address
from penstock.peers.peers import Knock, knock
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest

logger = logging.getLogger("penstock.controlling")

R = TypeVar("R")

FIRST_SIGN_S = 0.3
"""How long a new controller waits for the brokers' heartbeats before it tries to connect."""
KNOCK_PAUSES_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The pauses before each attempt to connect to a silent broker; its session continues."""
CHECK_INTERVAL_MS = 100
"""How often the controller checks that the loop runs, and so reads what others send."""
HELD_UP_MS_MIN = 100
"""A check that is later than this was blocked; less is normal for a loop."""


class Link(Protocol):
    """What a broker is heard through."""

    on_lost: Callable[[], None] | None
    """Called when it has broken."""


class ActiveController:
    def __init__(
        self,
        controller: Controller,
        node_id: int,
        listeners: Sequence[str],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        submit: Callable[[Callable[[Controller], Deciding[Any]]], Awaitable[Any]],
    ) -> None:
        """`listeners`: by which this node reaches others, the first one if they offer it."""
        self.controller = controller
        self._node_id = node_id
        self._listeners = listeners
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._submit = submit
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._links: dict[int, Link | None] = {}
        """How each broker was last heard from; None for the one on this node."""
        self._checked_ms = now_ms()
        """When the loop was last known to run."""
        self._dropped = False
        self.bootstrapped = False
        """The log is known to begin as a cluster's log has to."""

    def start(self) -> None:
        self._spawn(self._decide(lambda _: ([], None)))  # whatever the first decision brings
        self._knock_at_the_silent()
        self._timers["first sign"] = self._loop.call_later(FIRST_SIGN_S, self._knock_at_the_silent)
        self._check()
        self.arm()

    def drop(self) -> None:
        """The leadership is lost: nothing more is decided here."""
        self._dropped = True
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()

    # -- deadlines -----------------------------------------------------------------------------

    def arm(self) -> None:
        """After each decision: set the timer for what is due next."""
        now_ms = self._now_ms()
        deadline_ms = self.controller.next_deadline_ms(now_ms)
        timer = self._timers.pop("tick", None)
        if timer is not None:
            timer.cancel()
        if deadline_ms is not None and not self._dropped:
            delay_s = (deadline_ms - now_ms) / 1000
            self._timers["tick"] = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timers.pop("tick", None)
        self._spawn(self._do_what_is_due())

    async def _do_what_is_due(self) -> None:
        ended = await self._decide(self._due)
        if ended is not None:
            logger.warning(
                "a broker was not heard from and was fenced: its session is over",
                extra={"broker": ended.broker_id, "silent_ms": ended.silent_ms},
            )

    def _due(self, controller: Controller) -> Decision[EndedSession | None]:
        self._notice_hold_up()
        return controller.tick(self._now_ms(), self._wall_ms())

    def _check(self) -> None:
        self._notice_hold_up()
        self._timers["check"] = self._loop.call_later(CHECK_INTERVAL_MS / 1000, self._check)

    def _notice_hold_up(self) -> None:
        """Called before sessions are checked: what was sent while the loop was blocked is not read
        yet.
        """
        now_ms = self._now_ms()
        late_ms = now_ms - self._checked_ms - CHECK_INTERVAL_MS
        if late_ms > HELD_UP_MS_MIN:
            self.controller.held_up(late_ms, now_ms)
        self._checked_ms = now_ms

    # -- signs of life -------------------------------------------------------------------------

    def heard(self, broker_id: int, link: Link | None) -> None:
        """A broker registers or has sent a heartbeat; None: from this node itself."""
        self._notice_hold_up()
        if self._links.get(broker_id) is link and broker_id in self._links:
            return
        self._links[broker_id] = link
        if link is not None:
            link.on_lost = lambda: self._lost(broker_id, link)

    def ended_run(self, request: BrokerRegistrationRequest) -> Broker | None:
        """The earlier run that a registration proves to be over.

        A broker that registers holds the lock of its data folder and its addresses. If an earlier
        run of it had registered one of them, that run has ended.
        """
        broker = self.controller.image.brokers.get(request.broker_id)
        if (
            broker is None
            or broker.fenced
            or broker.incarnation_id == request.incarnation_id
            or broker.log_dirs != tuple(request.log_dirs)
        ):
            return None
        addresses = {(e.name, e.host, e.port) for e in request.listeners}
        registered = {(e.name, e.host, e.port) for e in broker.endpoints}
        return broker if addresses & registered else None

    def _lost(self, broker_id: int, link: Link) -> None:
        broker = self.controller.image.brokers.get(broker_id)
        if self._links.get(broker_id) is link and not self._dropped:
            del self._links[broker_id]
            if broker is not None and not broker.fenced:
                self._spawn(self._knock_at(broker))

    def _knock_at_the_silent(self) -> None:
        for broker in list(self.controller.image.brokers.values()):
            if not broker.fenced and broker.id not in (self._node_id, *self._links):
                self._spawn(self._knock_at(broker))

    async def _knock_at(self, broker: Broker) -> None:
        endpoint = choose(broker.endpoints, self._listeners) or choose(broker.endpoints, ())
        if endpoint is None:
            return
        if not await self._is_gone(broker, Address(endpoint.host, endpoint.port)):
            return
        now_ms = self._now_ms()
        if await self._decide(lambda c: c.broker_unreachable(broker.id, broker.epoch, now_ms)):
            logger.warning(
                "broker %d is gone and was fenced: nothing listens at %s:%d",
                broker.id,
                endpoint.host,
                endpoint.port,
            )

    async def _is_gone(self, broker: Broker, address: Address) -> bool:
        """Whether nothing listens there; tried again while the broker is silent.

        A process that is being killed loses its connections one by one, and the kernel may still
        accept for it when the first of them breaks.
        """
        for pause_s in KNOCK_PAUSES_S:
            await asyncio.sleep(pause_s)
            if self._links.get(broker.id) is not None:
                return False
            if await knock(address) is Knock.REFUSED:
                return True
        return False

    # -- deciding ------------------------------------------------------------------------------

    async def _decide(self, decide: Callable[[Controller], Deciding[R]]) -> R | None:
        """What the controller does by itself: if it cannot, a later controller will."""
        try:
            done: R = await self._submit(decide)
            return done
        except ApiError as e:
            logger.warning("the controller could not make a change: %s", e)
            return None

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("the controller failed at a duty", exc_info=task.exception())
