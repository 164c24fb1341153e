"""A broker's life as the controller sees it: registration, heartbeats, controlled shutdown.

    STARTING -> CATCHING_UP -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN

A broker registers with a new incarnation id and is given its epoch. It catches up with the metadata
as far as its own registration, then asks to be unfenced (RECOVERY) and runs. A heartbeat goes out
every `broker.heartbeat.interval.ms`, and immediately when something waits for it: to be unfenced,
to be let go, or when another broker's state has changed and the controller waits until all know. If
one fails, the next still follows after the pause: a silent broker is fenced.

While the session of an earlier run is alive the registration is refused and tried again. A broker
that the controller does not know any more registers again under the same incarnation id. Owned by
the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import BrokerSettings
from penstock.controlling.controller_access import ControllerAccess
from penstock.metadata.delta import MetadataDelta
from penstock.observe.logs import Alarm
from penstock.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

log = logging.getLogger("penstock.controlling")

NO_EPOCH = -1
HEARTBEATS_PER_SESSION_MIN = 3
"""A heartbeat that gets no answer is tried again so often before the session is over."""
EAGER_S = 0.02
"""The pause between heartbeats while something waits for one."""
REGISTRATION_RETRY_S = 0.1
LOG_AGAIN_S = 10.0
SHUTDOWN_CHECK_S = 0.5
SHUTDOWN_S_MAX = 30.0
"""How long a controlled shutdown may take before the node stops without it."""

_UNKNOWN_HERE = frozenset({ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH})


class BrokerState(Enum):
    STARTING = "starting"
    CATCHING_UP = "catching up with the metadata"
    RECOVERY = "waiting to be unfenced"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "handing over"
    SHUTTING_DOWN = "stopping"


class BrokerLifecycle:
    def __init__(
        self,
        controller: ControllerAccess,
        settings: BrokerSettings,
        request: BrokerRegistrationRequest,
        cordoned: Callable[[], list[bytes]],
        quorum_is_lost: Callable[[], Awaitable[bool]],
    ) -> None:
        """`request` is what the broker registers with; `cordoned` returns its cordoned folders;
        `quorum_is_lost` finds out whether there can be a controller at all.
        """
        self.state = BrokerState.STARTING
        self.epoch = NO_EPOCH
        """The broker epoch that the controller has given; -1 before that."""
        self._controller = controller
        self._settings = settings
        self._request = request
        self._cordoned = cordoned
        self._quorum_is_lost = quorum_is_lost
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unfenced = self._loop.create_future()
        self._let_go = self._loop.create_future()
        self._refused_logged_s = 0.0
        self._failed_logged_s = 0.0
        self._alarm = Alarm(log)

    # -- the way up ----------------------------------------------------------------------------

    async def register(self) -> None:
        """Register, and wait until this node has applied its own registration."""
        self.state = BrokerState.CATCHING_UP
        await self._register()
        while self._controller.committed_offset <= self.epoch:
            await self._pause(EAGER_S)

    async def run(self) -> None:
        """Have the broker unfenced, and send heartbeats from here on."""
        self.state = BrokerState.RECOVERY
        self._task = self._loop.create_task(self._beat())
        await asyncio.shield(self._unfenced)

    async def _register(self) -> None:
        while True:
            try:
                response: BrokerRegistrationResponse = await self._controller.ask(self._request)
                code, reason = ErrorCode(response.error_code), ""
            except ApiError as e:
                code, reason = e.code, e.message
            if code == ErrorCode.NONE:
                self.epoch = response.broker_epoch
                return
            self._log_refused(code, reason)
            await asyncio.sleep(REGISTRATION_RETRY_S)

    def _log_refused(self, code: ErrorCode, reason: str) -> None:
        now_s = self._loop.time()
        if now_s >= self._refused_logged_s:
            self._refused_logged_s = now_s + LOG_AGAIN_S
            log.warning(
                "the controller does not register this broker yet: %s",
                reason or code.name,
                extra={"error": code.name},
            )

    # -- heartbeats ----------------------------------------------------------------------------

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """The controller may be waiting for this broker to know of a change of the brokers."""
        if delta.changed_brokers:
            self._wake.set()

    async def _beat(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._heartbeat_or_register()
            except Exception:
                self._log_failed()
            await self._pause(self._interval_s())

    async def _heartbeat_or_register(self) -> None:
        try:
            await self._heartbeat()
        except ApiError as e:
            if e.code in _UNKNOWN_HERE:
                await self._register()
                self._wake.set()
                return
            self._alarm.raised("heartbeat", f"a heartbeat was not answered: {e}")

    def _log_failed(self) -> None:
        """Called while the exception is being handled."""
        now_s = self._loop.time()
        if now_s >= self._failed_logged_s:
            self._failed_logged_s = now_s + LOG_AGAIN_S
            log.exception("a heartbeat failed unexpectedly; the next follows")

    def _interval_s(self) -> float:
        if self.state in (BrokerState.RECOVERY, BrokerState.PENDING_CONTROLLED_SHUTDOWN):
            return EAGER_S
        return self._settings.config.broker_heartbeat_interval_ms / 1000

    async def _pause(self, seconds: float) -> None:
        """Sleep, unless there is something to report to the controller."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _heartbeat(self) -> None:
        config = self._settings.config
        stopping = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            broker_id=self._request.broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._controller.committed_offset - 1,
            want_shut_down=stopping,
            cordoned_log_dirs=self._cordoned(),
        )
        timeout_s = config.broker_session_timeout_ms / 1000
        response: BrokerHeartbeatResponse = await self._controller.ask(
            request, timeout_s=timeout_s, attempt_s=timeout_s / HEARTBEATS_PER_SESSION_MIN
        )
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), "from the controller")
        if not response.is_fenced and self.state is BrokerState.RECOVERY:
            self.state = BrokerState.RUNNING
            self._unfenced.set_result(None)
        if response.should_shut_down and stopping and not self._let_go.done():
            self._let_go.set_result(None)

    # -- the way down --------------------------------------------------------------------------

    async def shut_down(self) -> None:
        """Hand over leaderships and wait for the controller's permission to stop, up to
        `SHUTDOWN_S_MAX`.
        """
        if self.state is not BrokerState.RUNNING:
            return
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._wake.set()
        deadline = self._loop.time() + SHUTDOWN_S_MAX
        while True:
            done, _ = await asyncio.wait([self._let_go], timeout=SHUTDOWN_CHECK_S)
            if done:
                return
            if self._loop.time() >= deadline:
                log.warning("the controller has not taken over in time; stopping without it")
                return
            if await self._quorum_is_lost():
                log.warning("most voters of the quorum are gone; stopping without handing over")
                return

    def hurry(self) -> None:
        """Do not wait for the controller's permission any longer."""
        if not self._let_go.done():
            self._let_go.set_result(None)

    def stop(self) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        if self._task is not None:
            self._task.cancel()
