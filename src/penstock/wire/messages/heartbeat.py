"""Heartbeat: a classic group's member is alive."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, int16, int32, string


class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
