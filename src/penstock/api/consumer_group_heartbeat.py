"""ConsumerGroupHeartbeat (68), versions 0 to 1: the whole protocol of consumer groups (KIP-848)."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.serving.broker import Broker
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handler(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
def consumer_group_heartbeat(
    broker: Broker, request: Request[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    return to_shard(
        broker, request, request.body.group_id, request.body, ConsumerGroupHeartbeatResponse
    )
