"""Vote (52), versions 0 to 2: a candidate of the metadata quorum asks for this node's vote.

A node that has not found its cluster yet answers with epoch 0, which is how a founder learns that
there is none.
"""

from __future__ import annotations

from penstock.api.quorum import handled
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.base.ids import METADATA_TOPIC
from penstock.serving.services import Services
from penstock.wire.messages.vote import (
    ResponsePartitionData,
    ResponseTopicData,
    VoteRequest,
    VoteResponse,
)

NO_CLUSTER = 0
SOME_CLUSTER = 1
"""The first epoch of any cluster: a node that is about to read its log knows of one."""


@handler(VoteRequest, VoteResponse)
async def vote(services: Services, request: Request[VoteRequest]) -> VoteResponse:
    try:
        services.quorum.require_node(request.principal)
    except ApiError as e:
        return VoteResponse(error_code=e.code)
    if not services.quorum.has_started:
        epoch = NO_CLUSTER if services.quorum.is_new else SOME_CLUSTER
        part = ResponsePartitionData(leader_id=-1, leader_epoch=epoch)
        topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        return VoteResponse(topics=[topic])
    return await handled(services, request, lambda code: VoteResponse(error_code=code))
