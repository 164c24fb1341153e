"""Requests that the active controller decides: answered here when that is this node, passed on
otherwise.

A request is tried until its own time-out is over, `TIMEOUT_MS` where it has none: while there is
no controller, while it moves, and when the connection to it breaks. So a change may be made twice,
the second time with an answer such as TOPIC_ALREADY_EXISTS, as in Kafka. When the time is over the
answer is NOT_CONTROLLER, which clients retry.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import struct
from typing import Any

from penstock.api.registry import Api, Request
from penstock.base.errors import ErrorCode
from penstock.peers.errors import PeerError
from penstock.serving.broker import Broker
from penstock.wire.messages.default_principal_data import DefaultPrincipalData
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.schema import Message

TIMEOUT_MS = 30_000
RETRY_S = 0.05

_MOVED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_LENGTH = struct.Struct(">i")


async def answer(broker: Broker, api: Api, request: Request[Any], frame: bytes) -> Message | bytes:
    """The response, as a message when it was made here, as a whole frame when it was passed on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + getattr(request.body, "timeout_ms", TIMEOUT_MS) / 1000
    while True:
        if broker.controller.is_active or broker.quorum.failure is not None:
            response = await called(broker, api, request)
            if not moved(response):
                return response
        elif (data := await _passed_on(broker, request, frame, deadline - loop.time())) is not None:
            return _LENGTH.pack(len(data)) + data
        if loop.time() + RETRY_S >= deadline:
            return await called(broker, api, request)
        await broker.controller.wait_for_controller(RETRY_S)


async def _passed_on(
    broker: Broker, request: Request[Any], frame: bytes, timeout_s: float
) -> bytes | None:
    """The encoded answer of the active controller; None when it could not be had."""
    envelope = EnvelopeRequest(
        request_data=frame,
        request_principal=encode_principal(request.principal),
        client_host_address=encode_host(request.client_host),
    )
    try:
        return await broker.controller.forward(envelope, max(timeout_s, RETRY_S))
    except PeerError:
        return None


async def called(broker: Broker, api: Api, request: Request[Any]) -> Message:
    """The handler's response."""
    assert api.handle is not None
    response = api.handle(broker, request)
    found: Message = await response if inspect.isawaitable(response) else response
    return found


def moved(response: Message) -> bool:
    """Whether the response says that the controller is elsewhere by now."""
    return any(code in _MOVED for code in response.error_codes())


def encode_principal(principal: str) -> bytes:
    """A principal as Kafka's brokers hand it on: a version, then the structure."""
    kind, _, name = principal.partition(":")
    return b"\0\0" + DefaultPrincipalData(type=kind, name=name).encode(0)


def decode_principal(data: bytes | None) -> str | None:
    """The principal in `data`, None where there is none; `WireError` where it is not readable."""
    if data is None:
        return None
    found = DefaultPrincipalData.decode(data[2:], int.from_bytes(data[:2], "big"))
    return f"{found.type}:{found.name}"


def encode_host(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


def decode_host(data: bytes) -> str:
    return str(ipaddress.ip_address(data)) if len(data) in (4, 16) else ""
