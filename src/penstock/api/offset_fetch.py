"""OffsetFetch (9), versions 1 to 10: how far groups have read.

Shards answer one group at a time, in the form of version 8 and later; older versions are brought
into that form and back. With `require_stable` a partition with an offset in an open transaction is
answered with UNSTABLE_OFFSET_COMMIT; without, by its committed offset. Very many partitions of a
group are asked for some at a time, so that nobody else waits: then offsets that are committed
meanwhile may be in one part of the answer and not in the one before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from penstock.api.groups import to_shard
from penstock.api.registry import ELEMENTS_AT_ONCE_MAX, Request, handler
from penstock.api.shards import given, together
from penstock.base.errors import ErrorCode
from penstock.coordinator.commits import TOPIC_IDS_FROM
from penstock.net.turn import Turn
from penstock.serving.services import Services
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

PART_PARTITIONS_MAX = 200
"""Partitions that a shard is asked for at a time, if all are too many. Topics count as well, so
that a part is never too large itself.
"""
GROUPS_FROM = 8
GROUP_ERROR_FROM = 2
"""Before this version an error is repeated for each partition."""


@handler(OffsetFetchRequest, OffsetFetchResponse)
async def offset_fetch(
    services: Services, request: Request[OffsetFetchRequest]
) -> OffsetFetchResponse:
    body = request.body
    groups = body.groups if request.version >= GROUPS_FROM else [_one_group(body)]
    answers = await together(_fetch(services, request, group) for group in groups)
    found = [group for answer in answers for group in answer.groups]
    if request.version >= TOPIC_IDS_FROM:
        for group in found:
            group.topics.sort(key=_is_unknown)
    if request.version >= GROUPS_FROM:
        return OffsetFetchResponse(groups=found)
    return _one_answer(groups[0], found[0], request.version)


def _fetch(
    services: Services, request: Request[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    if group.has_more_than(ELEMENTS_AT_ONCE_MAX):
        return _fetch_in_parts(services, request, group)
    return to_shard(
        services,
        request,
        group.group_id,
        OffsetFetchRequest(groups=[group], require_stable=request.body.require_stable),
        OffsetFetchResponse,
    )


async def _fetch_in_parts(
    services: Services, request: Request[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> OffsetFetchResponse:
    whole: list[OffsetFetchResponseTopics] = []
    response, turn = OffsetFetchResponse(), Turn()
    for topics, continues in _parts(group.topics or []):
        part = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=topics,
        )
        response = await given(_fetch(services, request, part))
        [found] = response.groups
        if found.error_code:
            break
        if continues:
            whole[-1].partitions += found.topics.pop(0).partitions
        whole += found.topics
        found.topics = whole
        if turn.is_over:
            await turn.next()
    return response


def _parts(
    topics: list[OffsetFetchRequestTopics],
) -> Iterator[tuple[list[OffsetFetchRequestTopics], bool]]:
    """What to ask for at a time, and whether it begins with the rest of the last topic."""
    part: list[OffsetFetchRequestTopics] = []
    room, continues = PART_PARTITIONS_MAX, False
    for topic in topics:
        at = 0
        while at < max(len(topic.partition_indexes), 1):
            if not room:
                yield part, continues
                part, room, continues = [], PART_PARTITIONS_MAX, at > 0
            indexes = topic.partition_indexes[at : at + room]
            part.append(
                OffsetFetchRequestTopics(
                    name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes
                )
            )
            at += max(len(indexes), 1)
            room -= max(len(indexes), 1)
    yield part, continues


def _is_unknown(topic: OffsetFetchResponseTopics) -> bool:
    """Kafka answers topics whose ids it does not know after all others."""
    return any(p.error_code == ErrorCode.UNKNOWN_TOPIC_ID for p in topic.partitions[:1])


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
