"""Envelope (58), version 0: a client's request that a broker passes on to the active controller.

Only requests that are decided by the controller are taken; the answer inside has the header of the
client's own request. Where this node is not the active controller, or stops being it before the
records are committed, the envelope itself is answered with NOT_CONTROLLER and the broker tries
another node. Whoever sends an envelope must have the right to speak for a node: only then the
principal in it is believed. Without one it is the node's own request.
"""

from __future__ import annotations

import ipaddress
import json

from penstock.api.frames import (
    LENGTH_BYTES,
    BadHeader,
    client_id,
    encode_wide_response,
    read_header,
)
from penstock.api.registry import Request, handler
from penstock.auth.principal import Principal
from penstock.base.errors import ApiError, ErrorCode
from penstock.net.turn import in_turns
from penstock.serving.services import Services
from penstock.wire.errors import WireError
from penstock.wire.messages.default_principal_data import DefaultPrincipalData
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


@handler(EnvelopeRequest, EnvelopeResponse)
async def envelope(services: Services, request: Request[EnvelopeRequest]) -> EnvelopeResponse:
    frame = memoryview(request.body.request_data)
    try:
        services.quorum.require_node(request.principal)
    except ApiError as e:
        return EnvelopeResponse(error_code=e.code)
    try:
        api, version, correlation_id, position = read_header(frame)
    except BadHeader:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not api.on_controller:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        host = _host(request.body.client_host_address)
        principal = _principal(request.body.request_principal, host)
        body, _ = await in_turns(api.request.decode_in_steps(frame, position, version))
        inner = Request(
            body,
            api.key,
            version,
            client_id(frame),
            request.listener,
            request.connection,
            principal or request.principal,
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


def _principal(data: bytes | None, host: str) -> Principal | None:
    """The principal in `data`, None where there is none; `WireError` where it is not readable."""
    if data is None:
        return None
    found, end = DefaultPrincipalData.decode_from(data, 2, int.from_bytes(data[:2], "big"))
    return Principal(
        found.type,
        found.name,
        host,
        token_authenticated=found.token_authenticated,
        roles=_roles(bytes(data[end:])),
    )


def _roles(data: bytes) -> frozenset[str]:
    """What a node of ours adds: the roles that the principal's credential grants."""
    if not data:
        return frozenset()
    try:
        roles = json.loads(data)
    except ValueError as e:
        raise WireError("DefaultPrincipalData", 0, "its roles cannot be read") from e
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise WireError("DefaultPrincipalData", 0, "its roles are no list of names")
    return frozenset(roles)


def _host(data: bytes) -> str:
    return str(ipaddress.ip_address(data)) if len(data) in (4, 16) else ""
