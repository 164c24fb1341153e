"""AlterPartitionReassignments (45), versions 0 and 1: move partitions to other replicas, or cancel.

Each partition is decided by itself. The answer means that the move has begun; for whether it is
done use ListPartitionReassignments. A partition that is being moved already gets a new target.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handler(
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, on_controller=True
)
async def alter_partition_reassignments(
    services: Services, request: Request[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    body = request.body
    try:
        return await ask(services, request, AlterPartitionReassignmentsResponse)
    except ApiError as e:
        return AlterPartitionReassignmentsResponse(
            error_code=e.code,
            error_message=e.message,
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=e.code,
                            error_message=e.message,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in body.topics
            ],
        )
