"""DescribeQuorum (55), versions 0 to 2: voters, observers and how far each is, by the leader.

Directory ids and the nodes' endpoints are included from version 2 on.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.base.ids import ZERO_UUID
from penstock.serving.services import Services
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

NODES_FROM = 2


@handler(DescribeQuorumRequest, DescribeQuorumResponse, on_controller=True)
async def describe_quorum(
    services: Services, request: Request[DescribeQuorumRequest]
) -> DescribeQuorumResponse:
    try:
        response = await ask(services, request, DescribeQuorumResponse)
    except ApiError as e:
        return DescribeQuorumResponse(error_code=e.code, error_message=e.message)
    if request.version < NODES_FROM:
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = ZERO_UUID
    return response
