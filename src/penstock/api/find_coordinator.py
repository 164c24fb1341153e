"""FindCoordinator (10), versions 0 to 6: the node that coordinates a group or a transactional id,
or keeps the state of a share-partition.

The first question creates `__consumer_offsets`, `__transaction_state` or `__share_group_state`.
Only nodes ask for a share-partition, `group:topic id:partition`, from version 6 on.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.net.turn import Turn
from penstock.serving.services import Services
from penstock.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_FROM = 4
SHARE_FROM = 6
GROUP, TRANSACTION, SHARE = 0, 1, 2
KEYS_PER_CHECK = 100
"""Keys that are looked up before the clock is checked."""


@handler(FindCoordinatorRequest, FindCoordinatorResponse)
async def find_coordinator(
    services: Services, request: Request[FindCoordinatorRequest]
) -> FindCoordinatorResponse:
    body = request.body
    keys = body.coordinator_keys if request.version >= BATCHED_FROM else [body.key]
    found, turn = [], Turn()
    for number, key in enumerate(keys, 1):
        found.append(await _find(services, request, key))
        if number % KEYS_PER_CHECK == 0 and turn.is_over:
            await turn.next()
    if request.version >= BATCHED_FROM:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(
    services: Services, request: Request[FindCoordinatorRequest], key: str
) -> Coordinator:
    try:
        node_id = await _coordinator_of(services, request, key)
        for node in services.cluster.live_nodes(request.principal, request.listener):
            if node.id == node_id:
                return Coordinator(
                    key=key, node_id=node.id, host=node.host, port=node.port, error_message=None
                )
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"node {node_id} is not on this listener"
        )
    except ApiError as e:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=e.code, error_message=e.message
        )


async def _coordinator_of(
    services: Services, request: Request[FindCoordinatorRequest], key: str
) -> int:
    key_type = request.body.key_type
    if key_type == GROUP:
        return await services.groups.coordinator_of(request.principal, key)
    if key_type == TRANSACTION:
        return await services.transactions.coordinator_of(request.principal, key)
    if key_type == SHARE:
        if request.version < SHARE_FROM:
            raise ApiError(ErrorCode.INVALID_REQUEST, "version 6 knows share-partitions")
        return await services.share_states.coordinator_of(request.principal, key)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no coordinator type {key_type}")
