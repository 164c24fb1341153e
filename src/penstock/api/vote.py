"""Vote (52), versions 0 to 2: a candidate of the metadata quorum asks for this node's vote.

A node that has not found its cluster yet answers with epoch 0, which is how a founder learns that
there is none.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.ids import METADATA_TOPIC
from penstock.serving.broker import Broker
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
async def vote(broker: Broker, request: Request[VoteRequest]) -> VoteResponse:
    if not broker.quorum.has_started:
        epoch = NO_CLUSTER if broker.quorum.log.is_new else SOME_CLUSTER
        part = ResponsePartitionData(leader_id=-1, leader_epoch=epoch)
        topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        return VoteResponse(topics=[topic])
    response: VoteResponse = await broker.quorum.handle(request.body)
    return response
