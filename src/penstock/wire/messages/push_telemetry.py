"""PushTelemetry: metrics of a client (KIP-714)."""

from __future__ import annotations

from penstock.base.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, binary, boolean, int8, int16, int32, uuid


class PushTelemetryRequest(Message, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = binary("0+")


class PushTelemetryResponse(Message, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
