"""Envelope (58), version 0: a client's request that a broker passes on to the active controller.

Only requests that are decided by the controller are taken; the answer inside has the header of the
client's own request. Where this node is not the active controller, or stops being it before the
records are committed, the envelope itself is answered with NOT_CONTROLLER and the broker tries
elsewhere.
"""

from __future__ import annotations

from penstock.api.frames import LENGTH_BYTES, BadHeader, client_id, encode_response, read_header
from penstock.api.on_controller import called, decode_host, decode_principal, moved
from penstock.api.registry import ANONYMOUS, Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.broker import Broker
from penstock.wire.errors import WireError
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


@handler(EnvelopeRequest, EnvelopeResponse)
async def envelope(broker: Broker, request: Request[EnvelopeRequest]) -> EnvelopeResponse:
    frame = memoryview(request.body.request_data)
    try:
        api, version, correlation_id, position = read_header(frame)
    except BadHeader:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not api.on_controller:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        principal = decode_principal(request.body.request_principal)
        body, _ = api.request.decode_from(frame, position, version)
        inner = Request(
            body,
            api.key,
            version,
            client_id(frame),
            decode_host(request.body.client_host_address),
            request.listener,
            request.connection,
            principal or ANONYMOUS,
        )
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not broker.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    response = await called(broker, api, inner)
    if moved(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    answer = encode_response(api.key, version, correlation_id, response)
    return EnvelopeResponse(response_data=answer[LENGTH_BYTES:])
