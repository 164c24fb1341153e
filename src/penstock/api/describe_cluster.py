"""DescribeCluster (60), versions 0 to 2: cluster id, controller and brokers.

Fenced brokers are listed only when asked for (version 2). Every listener here is a broker's: who
asks for controllers is told so.
"""

from __future__ import annotations

from penstock.api.metadata import CLUSTER_OPERATIONS
from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.broker import Broker
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@handler(DescribeClusterRequest, DescribeClusterResponse)
def describe_cluster(
    broker: Broker, request: Request[DescribeClusterRequest]
) -> DescribeClusterResponse:
    body = request.body
    if body.endpoint_type != BROKERS:
        return _wrong_endpoint(body.endpoint_type)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id(),
        brokers=_brokers(broker, request.listener, fenced_too=body.include_fenced_brokers),
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _brokers(broker: Broker, listener: str, *, fenced_too: bool) -> list[DescribeClusterBroker]:
    found = []
    for peer in broker.metadata.brokers.values():
        endpoint = peer.endpoint(listener)
        if endpoint is not None and (fenced_too or not peer.fenced):
            found.append(
                DescribeClusterBroker(
                    broker_id=peer.id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=peer.rack,
                    is_fenced=peer.fenced,
                )
            )
    return found


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
