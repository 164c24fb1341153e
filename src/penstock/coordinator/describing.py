"""What a shard tells of its groups: ListGroups, and a description for each kind of group.

Each kind has an API of its own, which knows the groups of that kind alone (`_KINDS`).
DescribeGroups is that of classic groups; its older versions show what they do not know as dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinator.classic import ClassicGroup
from penstock.coordinator.consumer import ConsumerGroup
from penstock.coordinator.group import CONSUMER, SHARE, STREAMS, Group
from penstock.coordinator.share_group import ShareGroup
from penstock.coordinator.streams_group import StreamsGroup
from penstock.wire.messages import consumer_group_describe as of_consumers
from penstock.wire.messages import describe_groups as of_classic
from penstock.wire.messages import share_group_describe as of_share
from penstock.wire.messages import streams_group_describe as of_streams
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from penstock.wire.schema import Message

DESCRIBE_UNKNOWN_GROUP_FROM: Final = 6
"""From this version DescribeGroups says that a group is unknown; before, it is shown as dead."""
DEAD: Final = "Dead"


class _Kind(NamedTuple):
    """The API that describes groups of one kind."""

    name: str
    group: type[Any]
    describe: Callable[[Any], Any]
    described: type[Any]
    response: type[Any]


_KINDS: Final[Mapping[type[Message], _Kind]] = {
    of_consumers.ConsumerGroupDescribeRequest: _Kind(
        CONSUMER,
        ConsumerGroup,
        ConsumerGroup.describe_consumer,
        of_consumers.DescribedGroup,
        of_consumers.ConsumerGroupDescribeResponse,
    ),
    of_share.ShareGroupDescribeRequest: _Kind(
        SHARE,
        ShareGroup,
        ShareGroup.describe_share,
        of_share.DescribedGroup,
        of_share.ShareGroupDescribeResponse,
    ),
    of_streams.StreamsGroupDescribeRequest: _Kind(
        STREAMS,
        StreamsGroup,
        StreamsGroup.describe_streams,
        of_streams.DescribedGroup,
        of_streams.StreamsGroupDescribeResponse,
    ),
}


def listed(groups: Mapping[str, Group], request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    found = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name,
            group_type=group.group_type,
        )
        for group in groups.values()
        if (not states or group.state_name.lower() in states)
        and (not types or group.group_type in types)
    ]
    return ListGroupsResponse(groups=found)


def described_classic(
    groups: Mapping[str, Group], request: of_classic.DescribeGroupsRequest, version: int
) -> of_classic.DescribeGroupsResponse:
    found = [_classic(id_, groups.get(id_), version) for id_ in request.groups]
    return of_classic.DescribeGroupsResponse(groups=found)


def _classic(group_id: str, group: Group | None, version: int) -> of_classic.DescribedGroup:
    if isinstance(group, ClassicGroup):
        return group.describe_classic()
    dead = of_classic.DescribedGroup(group_id=group_id, group_state=DEAD)
    if version >= DESCRIBE_UNKNOWN_GROUP_FROM:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        dead.error_message = not_there(group_id, group, "classic")
    return dead


def described(groups: Mapping[str, Group], request: Any) -> Message:
    """The answer of the API of one kind of group: consumer, share, streams."""
    kind = _KINDS[type(request)]
    answers = []
    for group_id in request.group_ids:
        group = groups.get(group_id)
        if isinstance(group, kind.group):
            answers.append(kind.describe(group))
            continue
        refused = kind.described(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=not_there(group_id, group, kind.name),
        )
        answers.append(refused)
    response: Message = kind.response(groups=answers)
    return response


def not_there(group_id: str, group: Group | None, wanted: str) -> str:
    """Why a group of a type cannot be used: it is not there, or of another type."""
    if group is None:
        return f"Group {group_id} not found."
    return f"Group {group_id} is not a {wanted} group."
