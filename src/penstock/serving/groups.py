"""Groups of all kinds: a request goes to the shard that keeps its group.

With rights active a request needs one to the group, or is refused as a whole, and one to each topic
that it names: the others are answered by the shard (`_NEEDS`; a request without a row is none of a
client's). Nodes may list all groups and fetch their offsets. Who may not describe a topic does not
find it in a list. Owned by the event loop's thread.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from penstock.auth.principal import Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import ZERO_UUID, TopicKey
from penstock.coordinating.group_coordinator import GroupCoordinator
from penstock.coordinating.transactional_commits import TransactionalCommits
from penstock.coordinator.refusals import refuse
from penstock.coordinator.streams_group.topology import check_names, named_topics
from penstock.net.turn import Turn
from penstock.serving.rights import Rights
from penstock.serving.shards import ShardService
from penstock.serving.streams_topics import StreamsTopics
from penstock.wire.messages import consumer_group_describe as consumer_describe
from penstock.wire.messages import share_group_describe as share_describe
from penstock.wire.messages import streams_group_describe as streams_describe
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from penstock.wire.schema import Message

C = TypeVar("C", OffsetCommitRequest, TxnOffsetCommitRequest)

GROUPS_PER_CHECK: Final = 100
"""Groups whose rights are looked up before the clock is checked."""
HIDDEN_TOPIC: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
_TOPIC_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NEEDS: Final[Mapping[type[Message], Operation]] = {
    JoinGroupRequest: Operation.READ,
    SyncGroupRequest: Operation.READ,
    HeartbeatRequest: Operation.READ,
    LeaveGroupRequest: Operation.READ,
    ConsumerGroupHeartbeatRequest: Operation.READ,
    OffsetCommitRequest: Operation.READ,
    OffsetFetchRequest: Operation.DESCRIBE,
    OffsetDeleteRequest: Operation.DELETE,
    DescribeGroupsRequest: Operation.DESCRIBE,
    consumer_describe.ConsumerGroupDescribeRequest: Operation.DESCRIBE,
    ShareGroupHeartbeatRequest: Operation.READ,
    share_describe.ShareGroupDescribeRequest: Operation.DESCRIBE,
    StreamsGroupHeartbeatRequest: Operation.READ,
    streams_describe.StreamsGroupDescribeRequest: Operation.DESCRIBE,
    DeleteGroupsRequest: Operation.DELETE,
}
"""What has to be allowed on the group."""
_DESCRIPTIONS: Final = (
    consumer_describe.ConsumerGroupDescribeRequest,
    share_describe.ShareGroupDescribeRequest,
    streams_describe.StreamsGroupDescribeRequest,
)


class GroupService(ShardService):
    def __init__(
        self,
        groups: GroupCoordinator,
        commits: TransactionalCommits,
        streams_topics: StreamsTopics,
        rights: Rights,
    ) -> None:
        super().__init__(groups)
        self._groups = groups
        self._streams_topics = streams_topics
        self._commits = commits
        self._rights = rights

    def submit(
        self,
        principal: Principal,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        def ask(asked: Message) -> Message | Awaitable[Message]:
            return self._coordinator.submit(key, asked, version, client_id, client_host)

        if isinstance(request, DeleteGroupsRequest | OffsetDeleteRequest):
            try:
                self._rights.require_change(principal)
            except ApiError as e:
                return refuse(request, version, e.code)
        if isinstance(request, StreamsGroupHeartbeatRequest):
            return self._streams_heartbeat(principal, request, version, client_id, ask)
        if not self._rights.active:
            return ask(request)
        if isinstance(request, OffsetFetchRequest) and self._is_node(principal):
            return ask(request)
        if not self._rights.group(principal, _NEEDS[type(request)], key):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if isinstance(request, OffsetCommitRequest):
            return self._commit(principal, request, version, ask)
        if isinstance(request, OffsetFetchRequest):
            return self._fetch(principal, request, ask)
        if isinstance(request, OffsetDeleteRequest):
            return self._delete(principal, request, ask)
        if isinstance(request, ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest):
            if not all(self._may_describe(principal, n) for n in _subscribed(request)):
                return refuse(request, version, _TOPIC_DENIED)
            if isinstance(request, ShareGroupHeartbeatRequest):
                return ask(request)
            return self._groups.submit(
                key, request, version, client_id, client_host, lambda n: self._shows(principal, n)
            )
        if isinstance(request, _DESCRIPTIONS):
            return _then(ask(request), lambda found: self._without_hidden(principal, found))
        return ask(request)

    def everywhere(
        self, principal: Principal, request: Message, version: int, client_id: str, client_host: str
    ) -> list[Message | Awaitable[Message]]:
        answers = super().everywhere(principal, request, version, client_id, client_host)
        if self._rights.cluster_shows(principal, Operation.DESCRIBE) or self._is_node(principal):
            return answers
        return [self._listed(principal, answer) for answer in answers]

    async def coordinator_of(self, principal: Principal, key: str) -> int:
        self._rights.require_group(principal, Operation.DESCRIBE, key)
        return await self._coordinator.coordinator_of(key)

    async def offsets_partition(self, principal: Principal, group_id: str) -> int:
        """The partition of the internal topic that keeps the offsets of a group that is read in a
        transaction; `ApiError` if there is none. Creates the topic on first need.
        """
        self._rights.require_group(principal, Operation.READ, group_id)
        try:
            await self._coordinator.coordinator_of(group_id)
        except ApiError:
            if self._coordinator.partition_of(group_id) is None:
                raise
        index = self._coordinator.partition_of(group_id)
        assert index is not None
        return index

    def operations(self, principal: Principal, group_id: str) -> int:
        """What they may do with the group, as the bits of the protocol."""
        return self._rights.operations(principal, ResourceType.GROUP, group_id)

    async def commit_in_transaction(
        self,
        principal: Principal,
        request: TxnOffsetCommitRequest,
        version: int,
        client_id: str,
        client_host: str,
    ) -> TxnOffsetCommitResponse:
        """Store offsets as part of a transaction, once that is verified."""

        def ask(asked: TxnOffsetCommitRequest) -> Awaitable[TxnOffsetCommitResponse]:
            return self._commits.commit(asked, version, client_id, client_host)

        if not self._rights.active:
            return await ask(request)
        try:
            self._rights.require_transactional_id(
                principal, Operation.WRITE, request.transactional_id
            )
            self._rights.require_group(principal, Operation.READ, request.group_id)
        except ApiError as e:
            answer: Any = refuse(request, version, e.code)
        else:
            answer = self._commit(principal, request, version, ask)
        found: TxnOffsetCommitResponse = await answer if inspect.isawaitable(answer) else answer
        return found

    def _is_node(self, principal: Principal) -> bool:
        """Nodes may see all groups and where they are: what all have consumed may be deleted."""
        return self._rights.cluster_shows(principal, Operation.CLUSTER_ACTION)

    # -- topics --------------------------------------------------------------------------------

    def _may_describe(self, principal: Principal, topic: TopicKey) -> bool:
        return self._rights.topic(principal, Operation.DESCRIBE, topic)

    def _shows(self, principal: Principal, name: str) -> bool:
        return self._rights.shows(principal, Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _streams_heartbeat(
        self,
        principal: Principal,
        request: StreamsGroupHeartbeatRequest,
        version: int,
        client_id: str,
        ask: Callable[[Message], Message | Awaitable[Message]],
    ) -> Message | Awaitable[Message]:
        """A member needs a right to its group, and to know of each topic that it names."""
        if not self._rights.group(principal, Operation.READ, request.group_id):
            return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        names = set() if request.topology is None else named_topics(request.topology.subtopologies)
        try:
            check_names(names)
        except ApiError as e:
            return refuse(request, version, e.code, e.message)
        if not all(self._may_describe(principal, name) for name in sorted(names)):
            return refuse(request, version, _TOPIC_DENIED)
        return _then(
            ask(request),
            lambda answer: self._streams_topics.complete(
                principal, client_id, request.group_id, answer
            ),
        )

    def _commit(
        self,
        principal: Principal,
        request: C,
        version: int,
        ask: Callable[[C], Message | Awaitable[Message]],
    ) -> Message | Awaitable[Message]:
        allowed = [self._rights.topic(principal, Operation.READ, _key(t)) for t in request.topics]
        if all(allowed):
            return ask(request)
        denied = _with_topics(request, allowed, wanted=False)
        refused: Any = refuse(denied, version, _TOPIC_DENIED)
        if not any(allowed):
            return refused  # type: ignore[no-any-return]

        def joined(answer: Any) -> Message:
            answer.topics = refused.topics + answer.topics
            return answer  # type: ignore[no-any-return]

        return _then(ask(_with_topics(request, allowed, wanted=True)), joined)

    def _fetch(
        self,
        principal: Principal,
        request: OffsetFetchRequest,
        ask: Callable[[Message], Message | Awaitable[Message]],
    ) -> Message | Awaitable[Message]:
        (group,) = request.groups
        wanted = group.topics

        def visible(answer: Any) -> Message:
            for found in answer.groups:
                found.topics = [
                    t for t in found.topics if self._may_describe(principal, t.name or t.topic_id)
                ]
            return answer  # type: ignore[no-any-return]

        if wanted is None:
            return _then(ask(request), visible)
        allowed = [self._may_describe(principal, _key(topic)) for topic in wanted]
        if all(allowed):
            return ask(request)
        asked = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=[topic for topic, may in zip(wanted, allowed, strict=True) if may],
        )

        def joined(answer: Any) -> OffsetFetchResponse:
            """In the order of the request."""
            (found,) = answer.groups
            if not found.error_code:
                given = iter(found.topics)
                found.topics = [
                    next(given) if may else _refused_fetch(topic)
                    for topic, may in zip(wanted, allowed, strict=True)
                ]
            return answer  # type: ignore[no-any-return]

        return _then(
            ask(OffsetFetchRequest(groups=[asked], require_stable=request.require_stable)), joined
        )

    def _delete(
        self,
        principal: Principal,
        request: OffsetDeleteRequest,
        ask: Callable[[Message], Message | Awaitable[Message]],
    ) -> Message | Awaitable[Message]:
        may = {
            topic.name: self._rights.topic(principal, Operation.READ, topic.name)
            for topic in request.topics
        }
        rest = OffsetDeleteRequest(
            group_id=request.group_id, topics=[t for t in request.topics if may[t.name]]
        )

        def joined(answer: Any) -> OffsetDeleteResponse:
            if not answer.error_code:
                refused = [
                    _refused_delete(topic) for topic in request.topics if not may[topic.name]
                ]
                answer.topics = refused + answer.topics
            return answer  # type: ignore[no-any-return]

        return _then(ask(rest), joined)

    # -- what is shown -------------------------------------------------------------------------

    def _without_hidden(self, principal: Principal, answer: Any) -> Message:
        answer.groups = [
            group
            if all(self._may_describe(principal, name) for name in _told(group))
            else type(group)(
                group_id=group.group_id, error_code=_TOPIC_DENIED, error_message=HIDDEN_TOPIC
            )
            for group in answer.groups
        ]
        return answer  # type: ignore[no-any-return]

    async def _listed(
        self, principal: Principal, answer: Message | Awaitable[Message]
    ) -> ListGroupsResponse:
        """Without the groups that they may not know of."""
        found: Any = await answer if inspect.isawaitable(answer) else answer
        shown: list[ListedGroup] = []
        turn = Turn()
        for number, group in enumerate(found.groups, 1):
            if self._rights.shows(
                principal, Operation.DESCRIBE, ResourceType.GROUP, group.group_id
            ):
                shown.append(group)
            if number % GROUPS_PER_CHECK == 0 and turn.is_over:
                await turn.next()
        return ListGroupsResponse(error_code=found.error_code, groups=shown)


def _then(
    answer: Message | Awaitable[Message], change: Callable[[Any], Message]
) -> Message | Awaitable[Message]:
    if not inspect.isawaitable(answer):
        return change(answer)

    async def later() -> Message:
        return change(await answer)

    return later()


def _key(topic: Any) -> TopicKey:
    """Its id if it has one, else its name."""
    topic_id: bytes = getattr(topic, "topic_id", ZERO_UUID)
    name: str = topic.name
    return name if topic_id == ZERO_UUID else topic_id


def _with_topics(request: C, allowed: list[bool], *, wanted: bool) -> C:
    """The request with those of its topics that are allowed, or those that are not."""
    part = copy.copy(request)
    topics: list[Any] = [
        topic for topic, may in zip(request.topics, allowed, strict=True) if may == wanted
    ]
    part.topics = topics
    return part


def _subscribed(
    request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest,
) -> list[str]:
    return request.subscribed_topic_names or []


def _told(group: Any) -> set[str]:
    """The topics that a description names."""
    if isinstance(group, streams_describe.DescribedGroup):
        topology = group.topology
        return set() if topology is None else named_topics(topology.subtopologies or ())
    found = set()
    for member in group.members:
        assignments: list[Any] = [member.assignment]
        if isinstance(member, consumer_describe.Member):
            assignments.append(member.target_assignment)
        found |= {topic.topic_name for given in assignments for topic in given.topic_partitions}
    return found


def _refused_fetch(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=_TOPIC_DENIED
            )
            for index in topic.partition_indexes
        ],
    )


def _refused_delete(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=_TOPIC_DENIED
            )
            for partition in topic.partitions
        ],
    )
