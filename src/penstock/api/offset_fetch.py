"""OffsetFetch (9), versions 1 to 10: how far groups have read.

Shards answer one group at a time, in the form of version 8 and later; older versions are brought
into that form and back. With `require_stable` a partition with an offset in an open transaction is
answered with UNSTABLE_OFFSET_COMMIT; without, by its committed offset.
"""

from __future__ import annotations

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.api.shards import together
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

GROUPS_FROM = 8
GROUP_ERROR_FROM = 2
"""Before this version an error is repeated for each partition."""


@handler(OffsetFetchRequest, OffsetFetchResponse)
async def offset_fetch(
    services: Services, request: Request[OffsetFetchRequest]
) -> OffsetFetchResponse:
    body = request.body
    groups = body.groups if request.version >= GROUPS_FROM else [_one_group(body)]
    answers = await together(
        to_shard(
            services,
            request,
            group.group_id,
            OffsetFetchRequest(groups=[group], require_stable=body.require_stable),
            OffsetFetchResponse,
        )
        for group in groups
    )
    found = [group for answer in answers for group in answer.groups]
    if request.version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=found)
    return _one_answer(groups[0], found[0], request.version)


def _one_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ]
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)


def _one_answer(
    wanted: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    if found.error_code and version < GROUP_ERROR_FROM:
        return OffsetFetchResponse(topics=_errors(wanted, ErrorCode(found.error_code)))
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in found.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=found.error_code)


def _errors(wanted: OffsetFetchRequestGroup, code: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in wanted.topics or ()
    ]
