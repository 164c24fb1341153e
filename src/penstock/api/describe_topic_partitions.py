"""DescribeTopicPartitions (75), version 0: partitions of many topics, page by page.

Topics come sorted by name; no names means all topics. A page ends after
`response_partition_limit` partitions, at most `max.request.partition.size.limit` of the broker;
the cursor names where the next one begins. If all topics were asked for, one that was deleted
meanwhile is left out.
"""

from __future__ import annotations

from bisect import bisect_left

from penstock.api.metadata import TOPIC_OPERATIONS
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.image import Topic
from penstock.metadata.names import INTERNAL_TOPICS, check_topic_name
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
) -> DescribeTopicPartitionsResponse:
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
    return _page(services, request.principal, names, start, _limit(services, body))


def _limit(services: Services, body: DescribeTopicPartitionsRequest) -> int:
    most = services.topics.page_partitions_max
    return max(min(body.response_partition_limit, most), 1)


def _page(
    services: Services, principal: str, names: list[str], start: int, limit: int
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    topics = services.topics.all(principal)
    for name in names:
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            missing = _failed(name, _missing(name))
            missing.topic_authorized_operations = TOPIC_OPERATIONS
            response.topics.append(missing)
            continue
        described = _described(services, principal, topic, start, limit)
        response.topics.append(described)
        limit -= len(described.partitions)
        reached = start + len(described.partitions)
        if reached < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=reached)
            break
        start = 0
    return response


def _described(
    services: Services, principal: str, topic: Topic, start: int, limit: int
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
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except ApiError as e:
        return e.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _failed(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)
