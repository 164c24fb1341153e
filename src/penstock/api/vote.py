"""Vote (52), versions 0 to 2: a candidate of the metadata quorum asks for this node's vote.

A node that has not found its cluster yet answers with epoch 0, which is how a founder learns that
there is none.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.ids import METADATA_TOPIC
from penstock.broker.broker import Broker
from penstock.wire.messages.vote import (
    ResponsePartitionData,
    ResponseTopicData,
    VoteRequest,
    VoteResponse,
)


@handler(VoteRequest, VoteResponse)
async def vote(broker: Broker, request: Request[VoteRequest]) -> VoteResponse:
    if not broker.quorum.has_started:
        part = ResponsePartitionData(leader_id=-1, leader_epoch=0)
        topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        return VoteResponse(topics=[topic])
    response: VoteResponse = await broker.quorum.handle(request.body)
    return response
