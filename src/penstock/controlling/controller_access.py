"""The active controller as the rest of the node sees it, on whichever node it is.

`submit` decides on this node, if it is the active controller; `call` asks the active controller,
here or over the wire, and retries while it moves; `forward` passes a client's request on in an
envelope. After NOT_CONTROLLER or a lost connection the controller is looked up again. Owned by the
event loop's thread.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.base.errors import ApiError, ErrorCode
from penstock.controlling.quorum_driver import QuorumDriver
from penstock.metadata.broker_control import speaks_for
from penstock.metadata.controller import Controller, Decision
from penstock.net.connection import Connection
from penstock.peers.connection import Address, response_type
from penstock.peers.errors import PeerError, PeerLost, PeerUnreachable
from penstock.peers.peers import Channel, Peers
from penstock.raft.types import NO_NODE
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.decoders import skip_tags
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.schema import Message

R = TypeVar("R")

CALL_TIMEOUT_S = 30.0
ATTEMPT_TIMEOUT_S = 5.0
RETRY_S = 0.05
"""How long to wait for another controller before the same one is tried again."""

_HEADER = struct.Struct(">hhih")
_CORRELATION_ID_BYTES = 4
_NO_CLIENT_ID = -1


class ControllerAccess:
    def __init__(self, driver: QuorumDriver, peers: Peers) -> None:
        self._driver = driver
        self._peers = peers
        self._loop = asyncio.get_running_loop()

    @property
    def is_active(self) -> bool:
        """This node is the active controller."""
        return self._driver.seat.active is not None

    @property
    def id(self) -> int:
        """The node that is the active controller as far as is known here; -1: none."""
        return self._driver.leader_id

    @property
    def committed_offset(self) -> int:
        """Everything below it is in the served image."""
        return self._driver.metadata.applied_offset

    async def wait_for_controller(self, timeout_s: float) -> None:
        """Until there may be another active controller, or the time is over."""
        await self._driver.wait_for_change(timeout_s)

    # -- deciding here -------------------------------------------------------------------------

    async def submit(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Make a decision, and give its response when its records are committed.

        `ApiError` NOT_CONTROLLER where this node is not the active controller.
        """
        return await self._driver.seat.submit(decide)

    async def register_broker(
        self, request: BrokerRegistrationRequest, connection: Connection | None = None
    ) -> Any:
        """A broker registers; `connection` is the one that its request came by."""
        driver = self._driver
        active = driver.seat.active
        ended = None if active is None else active.ended_run(request)
        if ended is not None:
            intact = speaks_for(request, ended)
            await self.submit(
                lambda c: c.broker_unreachable(
                    ended.id, ended.epoch, driver.now_ms(), intact=intact
                )
            )
        self._heard(request.broker_id, connection)
        return await self.submit(
            lambda c: c.register_broker(request, driver.next_offset, driver.now_ms())
        )

    async def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, connection: Connection | None = None
    ) -> Any:
        """A broker's sign of life; `connection` is the one that it came by."""
        self._heard(request.broker_id, connection)
        driver = self._driver
        return await self.submit(
            lambda c: c.broker_heartbeat(request, driver.now_ms(), driver.next_offset)
        )

    def _heard(self, broker_id: int, connection: Connection | None) -> None:
        active = self._driver.seat.active
        if active is not None:
            active.heard(broker_id, connection)

    # -- asking --------------------------------------------------------------------------------

    async def call(
        self,
        request: Message,
        timeout_s: float = CALL_TIMEOUT_S,
        attempt_s: float = ATTEMPT_TIMEOUT_S,
    ) -> Any:
        """The active controller's response; `ApiError` when it could not be had in time.

        A request whose answer was lost, or has not come after `attempt_s`, is sent again over a new
        connection: it may be carried out twice.
        """
        deadline = self._loop.time() + timeout_s
        reason = "no active controller is known"
        while True:
            try:
                left_s = deadline - self._loop.time()
                response = await self._attempt(request, min(attempt_s, left_s))
                if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return response
            except PeerError as e:
                reason = str(e)
            except ApiError as e:
                if e.code != ErrorCode.NOT_CONTROLLER:
                    raise
            if self._loop.time() + RETRY_S >= deadline:
                raise ApiError(ErrorCode.NOT_CONTROLLER, reason)
            await self.wait_for_controller(RETRY_S)

    async def _attempt(self, request: Message, timeout_s: float) -> Any:
        if self._driver.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._driver.failure)
        if self.is_active:
            return await _HERE[type(request)](self, request)
        key = ApiKey(type(request).API_KEY or 0)
        if APIS[key].listener == "controller":
            address = self._driver.leader_address
            if address is None:
                raise PeerUnreachable("no active controller is known")
            channel = Channel.PARTITIONS if key == ApiKey.ALTER_PARTITION else Channel.CONTROLLER
            return await self._send(address, channel, request, timeout_s)
        version = APIS[key].stable_versions[-1]
        header = _HEADER.pack(key, version, 0, _NO_CLIENT_ID) + b"\0"
        encoded = header + request.encode(version)
        envelope = EnvelopeRequest(request_data=encoded, request_principal=None)
        data = memoryview(await self.forward(envelope, timeout_s))
        position = skip_tags(data, _CORRELATION_ID_BYTES, len(data))
        return response_type(type(request)).decode_from(data, position, version)[0]

    async def forward(self, envelope: EnvelopeRequest, timeout_s: float) -> bytes:
        """The encoded answer inside the envelope that came back; `PeerError` where the controller
        is elsewhere or not reached, `ApiError` where it refuses the envelope.
        """
        address = self._driver.leader_address
        if address is None:
            raise PeerUnreachable("no active controller is known")
        response = await self._send(address, Channel.FORWARD, envelope, timeout_s)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            raise PeerError(f"{address} is not the active controller")
        if response.error_code or response.response_data is None:
            raise ApiError(ErrorCode(response.error_code), f"{address} refuses to be asked")
        data: bytes = response.response_data
        return data

    async def _send(
        self, address: Address, channel: Channel, request: Message, timeout_s: float
    ) -> Any:
        """The response, or a `PeerError`, also when another leader is known before it comes."""
        driver, asked = self._driver, self._driver.leader_id
        sending = self._loop.create_task(
            self._peers.send(address, channel, request, timeout_s=timeout_s)
        )
        try:
            while not sending.done():
                await driver.wait_for_change(timeout_s, sending)
                if not sending.done() and driver.leader_id not in (asked, NO_NODE):
                    raise PeerLost(f"node {asked} is not the controller any more")
            return sending.result()
        finally:
            sending.cancel()


_HERE: dict[type[Message], Callable[[ControllerAccess, Any], Awaitable[Any]]] = {
    BrokerRegistrationRequest: ControllerAccess.register_broker,
    BrokerHeartbeatRequest: ControllerAccess.broker_heartbeat,
    AlterPartitionRequest: lambda a, r: a.submit(lambda c: c.alter_partition(r)),
    AllocateProducerIdsRequest: lambda a, r: a.submit(lambda c: c.allocate_producer_ids(r)),
    CreateTopicsRequest: lambda a, r: a.submit(lambda c: c.create_topics(r)),
}
"""What the node itself asks of the controller."""
