"""From a frame to its handler, and from the response to the answering frame.

Every request passes here and nowhere else: this is where it gets its principal, and its usage where
there are quotas; its rights are asked for by the services. Unknown APIs and versions close the
connection, as in Kafka; only ApiVersions answers an unknown version of itself, so that a newer
client can step down. A handler that fails unexpectedly costs its connection and a line in the log,
never the node.

A request or an answer with very many elements is decoded, handled and encoded in turns, so that
nobody else waits for it: what is large by its bytes (`DECODED_AT_ONCE_BYTES_MAX`) or by its
elements (`ELEMENTS_AT_ONCE_MAX`). Its connection starts no other request meanwhile. Decoded, such a
request takes up to a hundred times the memory of its frame: there are never more of them at once
than `WIDE_BYTES_MAX` and one, others wait in the order they came.

Until the node runs, only what other nodes need of it is served (`WHILE_FORMING`, then
`WHILE_STARTING`); the connection of a client that is too early is closed, and it tries again. Owned
by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.api.audited import audited, changes_cluster
from penstock.api.frames import (
    UNKNOWN_VERSION,
    BadHeader,
    client_id,
    encode_response,
    encode_wide_response,
    read_header,
)
from penstock.api.metering import Timed, is_metered, throttle
from penstock.api.registry import (
    DECODED_AT_ONCE_BYTES_MAX,
    ELEMENTS_AT_ONCE_MAX,
    Api,
    Request,
)
from penstock.base.steps import at_once
from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.net.memory import RequestMemory
from penstock.net.turn import Turn, in_turns
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.errors import WireError
from penstock.wire.schema import Message

if TYPE_CHECKING:
    from penstock.serving.services import Services

log = logging.getLogger("penstock.api")

WHILE_FORMING: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.VOTE})
"""What a node serves that looks for its cluster."""
WHILE_STARTING = WHILE_FORMING | frozenset(
    {
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""What a node serves while it starts: the quorum and the controller cannot wait for it."""
WIDE_BYTES_MAX: Final = 2 << 20
"""Bytes of the frames that are decoded and handled in turns at one time."""
WAIT_FOR_OTHERS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""These are answered when other clients have sent the same, which must not wait for them."""
CODES_PER_CHECK = 1_000
"""Error codes that are counted before the clock is checked."""
EVERYTHING: Final = frozenset(ApiKey)
Left: TypeAlias = Coroutine[Any, Any, None] | None
"""What is left to do for a request; None if it has been done."""
NOTHING: frozenset[ApiKey] = frozenset()
"""What a node serves that has failed: nothing; every connection is closed."""
OF_QUORUM: Final = frozenset(key for key, api in APIS.items() if api.listener != "broker")
"""What a listener serves that is for the metadata quorum alone."""


class Dispatcher:
    def __init__(self, services: Services, most: frozenset[ApiKey] = EVERYTHING) -> None:
        """`most` is what it serves when the node serves everything."""
        self._services = services
        self._quotas = services.quotas
        self._most = most
        self.audit = services.audit
        """None where nothing is audited."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references
        self._wide = RequestMemory(WIDE_BYTES_MAX)
        self.serves = WHILE_FORMING
        self.is_open = False
        """Whether the node has started: it serves here what it ever will."""

    def open(self, serves: frozenset[ApiKey]) -> None:
        """From now on serve this, as far as it is served here at all."""
        self.is_open = serves is EVERYTHING
        self.serves = serves if self._most is EVERYTHING else serves & self._most

    def __call__(self, connection: Connection, frame: memoryview, received_ns: int) -> None:
        """Start the request in `frame`; its answer goes through the exchange."""
        try:
            api, version, correlation_id, position = read_header(frame)
        except BadHeader as bad:
            connection.refuse(str(bad))
            return
        if self.serves is not EVERYTHING and api.key not in self.serves:
            connection.abort()
            return
        exchange = Exchange(connection, api.key, version, correlation_id, received_ns)
        if self._quotas.active and is_metered(api.key, version):
            self._meter(api, exchange, frame, position)
        else:
            self._begin(api, exchange, frame, position)

    def _meter(self, api: Api, exchange: Exchange, frame: memoryview, position: int) -> None:
        """There are quotas: count what the request uses."""
        try:
            name = client_id(frame)
        except WireError as broken:
            exchange.connection.refuse(str(broken))
            return
        principal, size = exchange.connection.principal, len(frame) - position
        usage = exchange.usage = self._quotas.usage(principal, name, size)
        usage.timed(self._begin, api, exchange, frame, position)

    def _begin(self, api: Api, exchange: Exchange, frame: memoryview, position: int) -> None:
        try:
            if api.handle_raw is not None:
                api.handle_raw(self._services, exchange, frame, position)
            else:
                self._handle(api, exchange, frame, position)
        except WireError as broken:
            exchange.connection.refuse(str(broken))
        except Exception:
            self._failed(exchange)

    def _handle(self, api: Api, exchange: Exchange, frame: memoryview, position: int) -> None:
        if exchange.version == UNKNOWN_VERSION:
            left = self._start(api, exchange, frame, api.request())
        elif len(frame) - position > DECODED_AT_ONCE_BYTES_MAX:
            exchange.connection.hold(len(frame))
            left = self._wide_request(api, exchange, frame, position)
        else:
            # Bytes after the end are let pass, as in Kafka: librdkafka sends some with Metadata.
            body, _ = api.request.decode_from(frame, position, exchange.version)
            left = self._start(api, exchange, frame, body)
        if left is not None:
            self._spawn(exchange, left)

    async def _wide_request(
        self, api: Api, exchange: Exchange, frame: memoryview, position: int
    ) -> None:
        size = len(frame)
        await self._room_for(size)
        left = None
        try:
            left = await self._decode_in_turns(api, exchange, frame, position)
            if left is not None and api.key not in WAIT_FOR_OTHERS:
                await left
                left = None
        finally:
            self._wide.give_back(size)
        if left is not None:
            await left

    async def _room_for(self, size: int) -> None:
        if not self._wide.full:
            self._wide.take(size)
            return
        room = self._loop.create_future()

        def enter() -> None:
            self._wide.take(size)
            room.set_result(None)

        self._wide.when_free(enter)
        await room

    async def _decode_in_turns(
        self, api: Api, exchange: Exchange, frame: memoryview, position: int
    ) -> Left:
        try:
            steps = api.request.decode_in_steps(frame, position, exchange.version)
            body, _ = await in_turns(steps)
            return self._start(api, exchange, frame, body)
        except WireError as broken:
            exchange.connection.refuse(str(broken))
        except Exception:
            self._failed(exchange)
        finally:
            exchange.connection.release()
        return None

    def _start(self, api: Api, exchange: Exchange, frame: memoryview, body: Message) -> Left:
        """Have the request handled; what is left to do, if that is not all."""
        assert api.handle is not None
        request = Request(
            body,
            exchange.api_key,
            exchange.version,
            client_id(frame),
            exchange.connection.listener,
            exchange.connection,
            exchange.connection.principal,
        )
        response = api.handle(self._services, request)
        if self.audit is not None and changes_cluster(api):
            response = audited(self.audit, request, response)
        in_steps = inspect.isgenerator(response)
        if inspect.isawaitable(response):
            exchange.park()
            return self._finish_later(exchange, response)
        if not in_steps:
            return self._finish(exchange, response)
        if body.has_more_than(api.at_once_max):
            return self._finish_later(exchange, in_turns(response))
        return self._finish(exchange, at_once(response))

    def _spawn(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        usage = exchange.usage
        task = self._loop.create_task(work if usage is None else Timed(usage, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_later(self, exchange: Exchange, response: Awaitable[Message]) -> None:
        try:
            left = self._finish(exchange, await response)
        except Exception:
            self._failed(exchange)
        else:
            if left is not None:
                await left

    def _finish(self, exchange: Exchange, response: Message) -> Left:
        if exchange.usage is not None:
            throttle(exchange, response)
        if response.has_more_than(ELEMENTS_AT_ONCE_MAX):
            return self._finish_in_turns(exchange, response)
        for code in response.error_codes():
            self._services.count_error(exchange.api_key, code)
        exchange.finish(
            encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response)
        )
        return None

    async def _finish_in_turns(self, exchange: Exchange, response: Message) -> None:
        try:
            await self._count_in_turns(exchange.api_key, response)
            frame = await encode_wide_response(
                exchange.api_key, exchange.version, exchange.correlation_id, response
            )
            exchange.finish(frame)
        except Exception:
            self._failed(exchange)

    async def _count_in_turns(self, api_key: int, response: Message) -> None:
        turn = Turn()
        for number, code in enumerate(response.each_code(), 1):
            if code:
                self._services.count_error(api_key, code)
            if number % CODES_PER_CHECK == 0 and turn.is_over:
                await turn.next()

    def _failed(self, exchange: Exchange) -> None:
        log.exception(
            "a request failed unexpectedly and its connection is closed",
            extra={"api": ApiKey(exchange.api_key).name, "version": exchange.version},
        )
        exchange.connection.abort()
        exchange.finish(None)
