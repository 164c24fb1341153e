"""AlterPartition (56), versions 2 and 3: a partition's leader changes the in-sync set.

Version 3 names the broker epoch of every member, so that a broker that was restarted meanwhile does
not join. NEW_LEADER_ELECTED means that the change was made and took the leadership away.
Unlike Kafka, a leader may leave itself out: it gives its leadership up to one of the others.
"""

from __future__ import annotations

from penstock.api.controller import decide
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@handler(AlterPartitionRequest, AlterPartitionResponse)
async def alter_partition(
    services: Services, request: Request[AlterPartitionRequest]
) -> AlterPartitionResponse:
    try:
        return await decide(services, request, AlterPartitionResponse)
    except ApiError as e:
        return AlterPartitionResponse(error_code=e.code)
