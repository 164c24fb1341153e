"""The audit log of a node: what happens here is queued, and written to `__audit` in the background.

Events are plain values when they are queued; their JSON is made by a worker thread. What is denied,
published or consumed again while the same event still waits is counted in it. Events that cannot be
written are tried again until they can; an event may be there twice, with the same `metadata.uid`.

Limits: `penstock.audit.queue.max.events` wait, one with many resources counts for each. Beyond
that further ones are dropped and counted (`drop`), or what would have to be written is refused
before it is done (`refuse`); what was done all the same, since it had begun, is queued then
above the limit, so that nothing is done unseen. A stop waits `FLUSH_S_MAX` for the rest.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final

from penstock import __version__
from penstock.auth.audit import (
    EVENTS_LOST,
    LOG_STARTED,
    LOG_STOPPED,
    LOGON,
    OTHER,
    READ,
    RESOURCES_PER_EVENT_MAX,
    UPDATE,
    AuditEvent,
    Kind,
    Origin,
    Resource,
    Status,
    cut,
    encode,
)
from penstock.auth.principal import NOBODY, USER, Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.broker_audit import (
    AUTHENTICATION,
    DENIED,
    MANAGEMENT,
    PUBLISH,
    REFUSE,
    AuditSettings,
)
from penstock.observe.logs import Alarm

log = logging.getLogger("penstock.audit")

LINGER_S: Final = 0.2
"""How long events are gathered before they are written."""
EVENTS_PER_WRITE_MAX: Final = 200
BYTES_PER_WRITE_MAX: Final = 256 * 1024
RETRY_S: Final = 0.1
RETRY_S_MAX: Final = 5.0
FLUSH_S_MAX: Final = 5.0
_FULL: Final = ApiError(
    ErrorCode.POLICY_VIOLATION,
    "the audit log cannot be written at the moment, and nothing is done unseen: try again later",
)

Write = Callable[[list[bytes]], Awaitable[None]]
"""Appends events to the topic; `PenstockError` if they may not be there."""


class AuditLog:
    def __init__(self, config: AuditSettings, node_id: int, run: str, write: Write, clock: Clock):
        """`run` names this run of the node."""
        self._write = write
        self._clock = clock
        self._origin = Origin(node_id, __version__, run)
        self._categories = frozenset(config.penstock_audit_categories)
        self._excluded = frozenset(config.penstock_audit_excluded_principals)
        self._queue_max = config.penstock_audit_queue_max_events
        self._refuses = config.penstock_audit_overflow == REFUSE
        self._queue: dict[Hashable, AuditEvent] = {}
        self._weight = 0  # of what is queued
        self._unwritten = 0  # events that were taken from the queue
        self._sequence = 0
        self._reported = 0  # of the lost ones
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._alarm = Alarm(log)
        self.written = 0
        self.dropped = 0
        self.refused = 0
        """Requests and logins."""
        self.is_node: Callable[[Principal], bool] = lambda _: False
        """Whether somebody may speak for a node."""

    @property
    def waiting(self) -> int:
        return len(self._queue) + self._unwritten

    def has(self, category: str) -> bool:
        return category in self._categories

    # -- what happens --------------------------------------------------------------------------

    def require(self, category: str, principal: Principal) -> None:
        """`ApiError` if something of the category must not be done, since it could not be written.
        To be asked before it is done. Who is excluded is not refused either.
        """
        is_full = self._refuses and self._weight >= self._queue_max
        if is_full and category in self._categories and principal.text not in self._excluded:
            self.refused += 1
            self._alarm.raised("refused", "requests are refused: the audit log is not written")
            raise _FULL

    def denied(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        if DENIED not in self._categories:
            return
        resource = Resource(resource_type.name.lower(), cut(name))
        kind = READ if operation in (Operation.READ, Operation.DESCRIBE) else OTHER
        event = AuditEvent(
            DENIED,
            kind,
            operation.name.lower(),
            Status.FAILURE,
            principal,
            self._clock.now_ms(),
            (resource,),
            detail="no ACL allows it, or one denies it",
        )
        self._add(event, event.key)

    def used(self, category: str, principal: Principal, topic: str, *, failed: bool) -> None:
        """Somebody has published to the topic, or consumed from it."""
        kind, operation = (UPDATE, "Produce") if category == PUBLISH else (READ, "Fetch")
        status = Status.FAILURE if failed else Status.SUCCESS
        resources = (Resource("topic", cut(topic)),)
        now_ms = self._clock.now_ms()
        event = AuditEvent(category, kind, operation, status, principal, now_ms, resources)
        self._add(event, event.key, done=True)

    def managed(
        self,
        principal: Principal,
        operation: str,
        kind: Kind,
        status: Status,
        resources: Sequence[Resource],
        *,
        client_id: str | None = None,
        detail: str = "",
    ) -> None:
        """A request to change the cluster was answered."""
        if MANAGEMENT not in self._categories:
            return
        for first in range(0, max(1, len(resources)), RESOURCES_PER_EVENT_MAX):
            event = AuditEvent(
                MANAGEMENT,
                kind,
                operation,
                status,
                principal,
                self._clock.now_ms(),
                tuple(resources[first : first + RESOURCES_PER_EVENT_MAX]),
                client_id=client_id,
                detail=detail,
            )
            self._add(event, None, done=status is not Status.FAILURE)

    def require_login(self, principal: Principal) -> None:
        """The same for a login. Nodes get in: the log may have to be written by them."""
        if not self.is_node(principal):
            self.require(AUTHENTICATION, principal)

    def by_certificate(
        self, listener: str, host: str, principal: Principal | None, reason: str
    ) -> None:
        """Somebody has shown a certificate, good or not."""
        if principal is None:
            self.login_failed("", host, listener, "TLS", reason)
        else:
            self.login(principal, listener, "TLS")

    def login(self, principal: Principal, listener: str, protocol: str) -> None:
        """Somebody is authenticated."""
        self._logged_in(Status.SUCCESS, principal, listener, protocol, "")

    def login_failed(
        self, claimed: str, host: str, listener: str, protocol: str, reason: str
    ) -> None:
        """`claimed`: the name that was given, if it got so far."""
        principal = Principal(USER, cut(claimed), host)
        self._logged_in(Status.FAILURE, principal, listener, protocol, reason)

    def _logged_in(
        self, status: Status, principal: Principal, listener: str, protocol: str, reason: str
    ) -> None:
        if AUTHENTICATION not in self._categories:
            return
        fields: dict[str, Any] = {
            "auth_protocol_id": 99,
            "auth_protocol": cut(protocol),
            "dst_endpoint": {"name": listener},
        }
        event = AuditEvent(
            AUTHENTICATION,
            LOGON,
            "",
            status,
            principal,
            self._clock.now_ms(),
            detail=reason,
            fields=fields,
        )
        failed = status is Status.FAILURE
        self._add(event, (event.key, event.detail) if failed else None, done=not failed)

    # -- the queue -----------------------------------------------------------------------------

    def _add(self, event: AuditEvent, key: Hashable, *, done: bool = False) -> None:
        """Events with the same key are told as one; `done`: more than a refusal has happened."""
        is_login_failure = event.kind is LOGON and event.status is Status.FAILURE
        if event.principal.text in self._excluded and not is_login_failure:
            return
        if key is not None and key in self._queue:
            self._queue[key].again(event.time_ms)
            return
        weight = _weight(event)
        if self._weight + weight > self._queue_max and not (done and self._refuses):
            self.dropped += 1
            self._alarm.raised(
                "dropped", "events of the audit log are lost: its queue is full", lost=self.dropped
            )
            return
        self._queue[key if key is not None else object()] = event
        self._weight += weight
        self._wake.set()

    def _own(self, kind: Kind, detail: str = "") -> AuditEvent:
        now_ms = self._clock.now_ms()
        return AuditEvent(MANAGEMENT, kind, "", Status.SUCCESS, NOBODY, now_ms, detail=detail)

    # -- writing -------------------------------------------------------------------------------

    def start(self) -> None:
        """The node serves: begin to write."""
        self._queue = {object(): self._own(LOG_STARTED), **self._queue}
        self._weight += 1
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, grace_s: float = FLUSH_S_MAX) -> None:
        """Write what waits, for a short time; what is left is lost, and said to be."""
        if self._task is not None:
            self._queue[object()] = self._own(LOG_STOPPED)
            self._weight += 1
            try:
                async with asyncio.timeout(min(grace_s, FLUSH_S_MAX)):
                    while self.waiting:
                        self._wake.set()
                        await asyncio.sleep(LINGER_S / 10)
            except TimeoutError:
                pass
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.waiting:
            self.dropped += self.waiting
            log.error(
                "events of the audit log are lost: the node stops", extra={"lost": self.dropped}
            )

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(LINGER_S)
            self._wake.clear()
            while self._queue:
                await self._write_some()

    async def _write_some(self) -> None:
        events = self._take()
        loop = asyncio.get_running_loop()
        values = await loop.run_in_executor(
            None, _encoded, events, self._sequence + 1, self._origin
        )
        self._sequence += len(events)
        for batch in _batches(values):
            pause_s = RETRY_S
            while not await self._written(batch):
                await asyncio.sleep(pause_s)
                pause_s = min(RETRY_S_MAX, pause_s * 2)
            self._unwritten -= len(batch)
            self.written += len(batch)
        self._weight -= sum(map(_weight, events))

    def _take(self) -> list[AuditEvent]:
        """The next events; they count against the limit until they are written."""
        if self.dropped > self._reported:
            lost = self.dropped - self._reported
            self._reported = self.dropped
            self._weight += 1
            event = self._own(EVENTS_LOST, f"{lost} events are lost before this one")
            self._queue = {object(): event, **self._queue}
        keys = list(self._queue)[:EVENTS_PER_WRITE_MAX]
        events = [self._queue.pop(key) for key in keys]
        self._unwritten += len(events)
        return events

    async def _written(self, batch: list[bytes]) -> bool:
        try:
            await self._write(batch)
        except Exception as e:
            # Whatever it is must not end the log; the alarm says what it was.
            self._alarm.raised("unwritten", "the audit log cannot be written", reason=str(e))
            return False
        return True


def _weight(event: AuditEvent) -> int:
    return max(1, len(event.resources))


def _encoded(events: list[AuditEvent], sequence: int, origin: Origin) -> list[bytes]:
    """In a worker: nobody changes what has left the queue."""
    return [encode(event, number, origin) for number, event in enumerate(events, sequence)]


def _batches(values: list[bytes]) -> list[list[bytes]]:
    batches: list[list[bytes]] = []
    size = BYTES_PER_WRITE_MAX
    for value in values:
        size += len(value)
        if size > BYTES_PER_WRITE_MAX:
            batches.append([])
            size = len(value)
        batches[-1].append(value)
    return batches
