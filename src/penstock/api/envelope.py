"""Envelope (58), version 0: a client's request that a broker passes on to the active controller.

Only requests that are decided by the controller are taken; the answer inside has the header of the
client's own request. Where this node is not the active controller, or stops being it before the
records are committed, the envelope itself is answered with NOT_CONTROLLER and the broker tries
another node.
"""

from __future__ import annotations

import ipaddress

from penstock.api.frames import (
    LENGTH_BYTES,
    BadHeader,
    client_id,
    encode_wide_response,
    read_header,
)
from penstock.api.registry import ANONYMOUS, Request, handler
from penstock.base.errors import ErrorCode
from penstock.net.turn import in_turns
from penstock.serving.services import Services
from penstock.wire.errors import WireError
from penstock.wire.messages.default_principal_data import DefaultPrincipalData
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


@handler(EnvelopeRequest, EnvelopeResponse)
async def envelope(services: Services, request: Request[EnvelopeRequest]) -> EnvelopeResponse:
    frame = memoryview(request.body.request_data)
    try:
        api, version, correlation_id, position = read_header(frame)
    except BadHeader:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not api.on_controller:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        principal = _principal(request.body.request_principal)
        body, _ = await in_turns(api.request.decode_in_steps(frame, position, version))
        inner = Request(
            body,
            api.key,
            version,
            client_id(frame),
            _host(request.body.client_host_address),
            request.listener,
            request.connection,
            principal or ANONYMOUS,
            forwarded=True,
        )
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not services.cluster.is_controller:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    assert api.handle is not None
    response = await api.handle(services, inner)
    if ErrorCode.NOT_CONTROLLER in response.error_codes():
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    answer = await encode_wide_response(api.key, version, correlation_id, response)
    return EnvelopeResponse(response_data=answer[LENGTH_BYTES:])


def _principal(data: bytes | None) -> str | None:
    """The principal in `data`, None where there is none; `WireError` where it is not readable."""
    if data is None:
        return None
    found = DefaultPrincipalData.decode(data[2:], int.from_bytes(data[:2], "big"))
    return f"{found.type}:{found.name}"


def _host(data: bytes) -> str:
    return str(ipaddress.ip_address(data)) if len(data) in (4, 16) else ""
