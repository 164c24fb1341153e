"""Offsets of share groups: where they stand with each partition, moved and forgotten by hand.

With rights active a request needs one to the group, or is refused as a whole, and one to each topic
that it names: others are answered here. Heartbeats and descriptions of share groups go the way of
all groups (`groups`). Owned by the event loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from penstock.coordinating.share_groups import ShareGroups
    from penstock.serving.rights import Rights

DENIED = "Topic authorization failed."
_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = -1
"""In the place of an offset or a lag."""


class ShareGroupService:
    def __init__(self, groups: ShareGroups, rights: Rights) -> None:
        self._groups = groups
        self._rights = rights

    async def describe_offsets(
        self, principal: Principal, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """One group's offsets: of the topics that are named, or of all that they may know of."""
        group_id, topics = asked.group_id, asked.topics
        if not self._rights.group(principal, Operation.DESCRIBE, group_id):
            return _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        may = {
            topic.topic_name: self._rights.topic(principal, Operation.DESCRIBE, topic.topic_name)
            for topic in topics or ()
        }
        rest = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
        if topics is not None:
            rest.topics = [topic for topic in topics if may[topic.topic_name]]
        try:
            answer = await self._groups.describe(rest)
        except ApiError as e:
            return _failed(group_id, e.code, e.message)
        if topics is None:
            answer.topics = [
                topic
                for topic in answer.topics
                if self._rights.topic(principal, Operation.DESCRIBE, topic.topic_name)
            ]
        else:
            answer.topics += [_hidden(topic) for topic in topics if not may[topic.topic_name]]
        return answer

    async def alter_offsets(
        self, principal: Principal, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse:
        """Move the starts of a group without members."""
        group_id = request.group_id
        self._rights.require_group(principal, Operation.READ, group_id)
        self._rights.require_change(principal)
        may = {
            topic.topic_name: self._rights.topic(principal, Operation.READ, topic.topic_name)
            for topic in request.topics
        }
        rest = [topic for topic in request.topics if may[topic.topic_name]]
        answer = await self._groups.alter(
            AlterShareGroupOffsetsRequest(group_id=group_id, topics=rest)
        )
        if not answer.error_code:
            refused = [_not_moved(t) for t in request.topics if not may[t.topic_name]]
            answer.responses = [*refused, *answer.responses]
        return answer

    async def delete_offsets(
        self, principal: Principal, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse:
        """Forget topics of a group without members."""
        group_id = request.group_id
        self._rights.require_group(principal, Operation.DELETE, group_id)
        self._rights.require_change(principal)
        may = {
            topic.topic_name: self._rights.topic(principal, Operation.READ, topic.topic_name)
            for topic in request.topics
        }
        rest = [topic for topic in request.topics if may[topic.topic_name]]
        answer = await self._groups.delete_offsets(
            DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rest)
        )
        if not answer.error_code:
            refused = [
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name, error_code=_TOPIC_DENIED, error_message=DENIED
                )
                for name, allowed in may.items()
                if not allowed
            ]
            answer.responses = [*refused, *answer.responses]
        return answer


def _failed(
    group_id: str, code: ErrorCode, message: str | None = None
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, error_code=code, error_message=message
    )


def _hidden(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=UNKNOWN,
                lag=UNKNOWN,
                error_code=_TOPIC_DENIED,
                error_message=DENIED,
            )
            for number in topic.partitions
        ],
    )


def _not_moved(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index,
                error_code=_TOPIC_DENIED,
                error_message=DENIED,
            )
            for partition in topic.partitions
        ],
    )
