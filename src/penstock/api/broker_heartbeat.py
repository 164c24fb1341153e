"""BrokerHeartbeat (63), versions 0 to 2: a broker's sign of life, and the state that it wants.

`CurrentMetadataOffset` is the offset of the last metadata record that the broker has applied.
Offline data folders are not acted upon: a node has one, and fails with it.
"""

from __future__ import annotations

from penstock.api.controller import decide
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)


@handler(BrokerHeartbeatRequest, BrokerHeartbeatResponse)
async def broker_heartbeat(
    services: Services, request: Request[BrokerHeartbeatRequest]
) -> BrokerHeartbeatResponse:
    try:
        return await decide(services, request, BrokerHeartbeatResponse)
    except ApiError as e:
        return BrokerHeartbeatResponse(error_code=e.code)
