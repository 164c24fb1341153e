"""ConsumerGroupHeartbeat (68), versions 0 to 1: the whole protocol of consumer groups (KIP-848).

Where `group.coordinator.rebalance.protocols` leaves the protocol out, and where the level of
group.version is 0, its requests are answered UNSUPPORTED_VERSION, whichever node coordinates the
group.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.coordinator.group import CONSUMER
from penstock.serving.services import Services
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def serves_consumer_protocol(services: Services) -> bool:
    return CONSUMER in services.settings.group_protocols and services.cluster.has_consumer_protocol


@handler(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
def consumer_group_heartbeat(
    services: Services, request: Request[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    if not serves_consumer_protocol(services):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return to_shard(
        services, request, request.body.group_id, request.body, ConsumerGroupHeartbeatResponse
    )
