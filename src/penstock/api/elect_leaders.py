"""ElectLeaders (43), versions 0 to 2: elect the preferred replicas, or any that is alive.

Without partitions all are meant, and those that need no election are left out of the answer.
Version 0 knows preferred elections only. The answer is given when the election is committed; the
brokers learn of it right after.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@handler(ElectLeadersRequest, ElectLeadersResponse, on_controller=True)
async def elect_leaders(
    services: Services, request: Request[ElectLeadersRequest]
) -> ElectLeadersResponse:
    body = request.body
    try:
        return await ask(services, request, ElectLeadersResponse)
    except ApiError as e:
        return ElectLeadersResponse(
            error_code=e.code if request.version >= 1 else 0,
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        PartitionResult(
                            partition_id=index, error_code=e.code, error_message=e.message
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in body.topic_partitions or ()
            ],
        )
