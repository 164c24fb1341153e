"""DescribeTopicPartitions (75), version 0: partitions of many topics, page by page.

Topics come sorted by name; no names means all topics. A page ends after
`response_partition_limit` partitions, at most `max.request.partition.size.limit` of the broker;
the cursor names where the next one begins. If all topics were asked for, those that the client may
not describe are left out, and one that was deleted meanwhile too; by name they are refused, on each
page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable

from penstock.api.registry import Request, handler
from penstock.auth.principal import Principal
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps, at_once
from penstock.metadata.image import Topic
from penstock.metadata.names import INTERNAL_TOPICS, check_topic_name
from penstock.net.turn import in_turns
from penstock.serving.services import Services
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@handler(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
def describe_topic_partitions(
    services: Services, request: Request[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
    body = request.body
    wanted = {topic.name for topic in body.topics}
    cursor = body.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (wanted and cursor.topic_name not in wanted)
    ):
        return DescribeTopicPartitionsResponse(
            topics=[_failed(name, ErrorCode.INVALID_REQUEST) for name in sorted(wanted)]
        )
    if wanted:
        names = sorted(wanted)
    else:
        names = services.topics.sorted_names(request.principal)
    start = 0
    if cursor is not None:
        names = names[bisect_left(names, cursor.topic_name) :]
        start = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    page = _page(services, request, names, start)
    if wanted or services.topics.sees_all(request.principal):
        return at_once(page)
    return in_turns(page)


def _limit(services: Services, body: DescribeTopicPartitionsRequest) -> int:
    most = services.topics.page_partitions_max
    return max(min(body.response_partition_limit, most), 1)


def _page(
    services: Services,
    request: Request[DescribeTopicPartitionsRequest],
    names: list[str],
    start: int,
) -> Steps[DescribeTopicPartitionsResponse]:
    response, principal = DescribeTopicPartitionsResponse(), request.principal
    denied, limit = [], _limit(services, request.body)
    for name in names:
        yield
        begin, start = start, 0  # the cursor is in the first topic
        found = _find(services, request, name)
        if found is None:
            continue
        if found is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            denied.append(_failed(name, found))
        elif limit == 0:
            response.next_cursor = response.next_cursor or Cursor(
                topic_name=name, partition_index=0
            )
        elif isinstance(found, ErrorCode):
            missing = _failed(name, found)
            missing.topic_authorized_operations = services.topics.operations(principal, name)
            response.topics.append(missing)
        else:
            described = _described(services, principal, found, begin, limit)
            response.topics.append(described)
            limit -= len(described.partitions)
            reached = begin + len(described.partitions)
            if reached < len(found.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=reached)
        if response.next_cursor is not None and not request.body.topics:
            break
    response.topics += denied
    return response


def _find(
    services: Services, request: Request[DescribeTopicPartitionsRequest], name: str
) -> Topic | ErrorCode | None:
    """The topic, or what is said in its place; None if nothing is."""
    if not request.body.topics:
        return services.topics.get(request.principal, name)
    try:
        return services.topics.find(request.principal, name)
    except ApiError as e:
        return _missing(name) if e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else e.code


def _described(
    services: Services, principal: Principal, topic: Topic, start: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    page = enumerate(topic.partitions[start : start + limit], start)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=0 if p.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=p.leader,
                leader_epoch=p.leader_epoch,
                replica_nodes=list(p.replicas),
                isr_nodes=list(p.isr),
                eligible_leader_replicas=list(p.elr),
                last_known_elr=list(p.last_known_elr),
                offline_replicas=services.cluster.offline(principal, p.replicas),
            )
            for index, p in page
        ],
        topic_authorized_operations=services.topics.operations(principal, topic.name),
    )


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except ApiError as e:
        return e.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
