"""ListPartitionReassignments (46), version 0: the moves of partitions that are under way.

The controller answers, as its metadata is the newest; partitions that are not being moved, or do
not exist, are left out.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handler(ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, on_controller=True)
async def list_partition_reassignments(
    services: Services, request: Request[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    try:
        return await ask(services, request, ListPartitionReassignmentsResponse)
    except ApiError as e:
        return ListPartitionReassignmentsResponse(error_code=e.code, error_message=e.message)
