"""ConsumerGroupHeartbeat (68), versions 0 to 1: the whole protocol of consumer groups (KIP-848).

Where `group.coordinator.rebalance.protocols` leaves the protocol out, its requests are answered
UNSUPPORTED_VERSION, whoever coordinates the group.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.coordinator.group import CONSUMER
from penstock.serving.broker import Broker
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def serves_consumer_protocol(broker: Broker) -> bool:
    return CONSUMER in broker.config.group_coordinator_rebalance_protocols


@handler(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
def consumer_group_heartbeat(
    broker: Broker, request: Request[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    if not serves_consumer_protocol(broker):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return to_shard(
        broker, request, request.body.group_id, request.body, ConsumerGroupHeartbeatResponse
    )
