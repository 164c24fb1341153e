"""GetTelemetrySubscriptions (71), version 0: which metrics a client shall push, and how often.

Where no subscription matches the client, it is asked for none and comes again later. Not served,
and not advertised, where `penstock.telemetry.enable` is off.
"""

from __future__ import annotations

from typing import Final

from penstock.api.registry import Request, handler
from penstock.api.telemetry import client_of, instance_told
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.compression import Compression
from penstock.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""In the order of Kafka's preference; no compression is accepted, too."""


@handler(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse)
def get_telemetry_subscriptions(
    services: Services, request: Request[GetTelemetrySubscriptionsRequest]
) -> GetTelemetrySubscriptionsResponse:
    telemetry = services.telemetry
    try:
        found = telemetry.ask(
            request.principal, client_of(request), request.body.client_instance_id
        )
    except ApiError as e:
        return GetTelemetrySubscriptionsResponse(error_code=e.code)
    instance_told(services, request.connection, found.id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.id,
        subscription_id=found.subscription_id,
        accepted_compression_types=[*ACCEPTED],
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=found.metrics,
    )
