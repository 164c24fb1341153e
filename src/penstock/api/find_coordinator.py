"""FindCoordinator (10), versions 0 to 6.

There are no coordinators yet: every key is answered with COORDINATOR_NOT_AVAILABLE and a
sentence that says what works instead. The code is one that clients try again: librdkafka
asks even when partitions are assigned by hand, and would hand any other error to the
application.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.broker.broker import Broker
from penstock.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_FROM = 4
_WHAT = {0: "consumer groups", 1: "transactions", 2: "share groups"}


@handler(FindCoordinatorRequest, FindCoordinatorResponse)
def find_coordinator(
    _: Broker, request: Request[FindCoordinatorRequest]
) -> FindCoordinatorResponse:
    body = request.body
    what = _WHAT.get(body.key_type)
    if what is None:
        code, message = ErrorCode.INVALID_REQUEST, f"there is no coordinator type {body.key_type}"
    else:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        message = f"{what} are not available on this cluster; assign partitions by hand instead"
    if request.version < BATCHED_FROM:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
            )
            for key in body.coordinator_keys
        ]
    )
