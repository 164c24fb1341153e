"""StreamsGroupHeartbeat (88), version 0: all that a member of a streams group says (KIP-1071).

Where `group.coordinator.rebalance.protocols` leaves the protocol out, and where the level of
streams.version is 0, its requests are answered UNSUPPORTED_VERSION. Internal topics that a topology
lacks are created with the rights of the member.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.coordinator.group import STREAMS
from penstock.serving.services import Services
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def serves_streams_groups(services: Services) -> bool:
    return STREAMS in services.settings.group_protocols and services.cluster.has_streams_groups


@handler(StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse)
def streams_group_heartbeat(
    services: Services, request: Request[StreamsGroupHeartbeatRequest]
) -> StreamsGroupHeartbeatResponse | Awaitable[StreamsGroupHeartbeatResponse]:
    if not serves_streams_groups(services):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return to_shard(
        services, request, request.body.group_id, request.body, StreamsGroupHeartbeatResponse
    )
