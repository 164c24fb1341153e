"""PushTelemetry (72), version 0: a client's metrics.

Metrics that cannot be unpacked or read are an INVALID_RECORD, after which clients push no more; so
it is in Kafka when a plug-in fails. Not served, and not advertised, where
`penstock.telemetry.enable` is off.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.telemetry import client_of, instance_told
from penstock.base.errors import ApiError
from penstock.serving.client_instances import Push
from penstock.serving.services import Services
from penstock.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@handler(PushTelemetryRequest, PushTelemetryResponse)
async def push_telemetry(
    services: Services, request: Request[PushTelemetryRequest]
) -> PushTelemetryResponse:
    body = request.body
    push = Push(
        body.client_instance_id,
        body.subscription_id,
        body.terminating,
        body.compression_type,
        len(body.metrics),
    )
    instance_told(services, request.connection, body.client_instance_id)
    try:
        await services.telemetry.push(
            request.principal, client_of(request), push, memoryview(body.metrics)
        )
    except ApiError as e:
        return PushTelemetryResponse(error_code=e.code)
    return PushTelemetryResponse()
