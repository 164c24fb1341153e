"""DescribeCluster (60), versions 0 to 2: cluster id, controller and brokers.

Fenced brokers are listed only when asked for (version 2). Every listener here is a broker's: a
request for controllers is refused.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@handler(DescribeClusterRequest, DescribeClusterResponse)
def describe_cluster(
    services: Services, request: Request[DescribeClusterRequest]
) -> DescribeClusterResponse:
    body = request.body
    if body.endpoint_type != BROKERS:
        return _wrong_endpoint(body.endpoint_type)
    response = DescribeClusterResponse(
        cluster_id=services.cluster.id,
        controller_id=services.cluster.controller_id(request.principal, request.listener),
        brokers=[
            DescribeClusterBroker(
                broker_id=node.id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=node.fenced,
            )
            for node in services.cluster.nodes(request.principal, request.listener)
            if body.include_fenced_brokers or not node.fenced
        ],
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = services.cluster.operations(request.principal)
    return response


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this address is a broker's, not a controller's: ask for brokers",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"there is no endpoint type {endpoint_type}: use 1 for brokers",
    )
