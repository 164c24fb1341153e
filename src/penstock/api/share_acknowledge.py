"""ShareAcknowledge (79), versions 1 and 2: what became of records that a member of a share group
holds.

Version 2 can ask for more time with them. The last request of a session (epoch -1) gives back what
is not acknowledged. Difference from Kafka: a node that does not lead the partition any more says
so, with the leader, instead of UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.serving.services import Services
from penstock.wire.messages.share_acknowledge import (
    NodeEndpoint,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)


@handler(ShareAcknowledgeRequest, ShareAcknowledgeResponse)
async def share_acknowledge(
    services: Services, request: Request[ShareAcknowledgeRequest]
) -> ShareAcknowledgeResponse:
    principal = request.principal
    response, leaders = await services.share.acknowledge(principal, request.body, request.version)
    if leaders:
        found = services.cluster.endpoints(principal, leaders, request.listener)
        response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in found
        ]
    return response
