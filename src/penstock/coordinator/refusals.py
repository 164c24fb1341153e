"""The answer to a group request that is refused as a whole, for each request and version.

Each API has its own place for an error: one code for all, one for each group, or one for each
partition. `refuse` knows them, so that a driver can refuse a request without knowing its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.coordinator.commits import CommitResponse, refused_commit
from penstock.wire.messages import consumer_group_describe as consumer_describe
from penstock.wire.messages import describe_groups as describe
from penstock.wire.messages import share_group_describe as share_describe
from penstock.wire.messages import streams_group_describe as streams_describe
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from penstock.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.wire.schema import Message

PROTOCOL_NULLABLE_FROM: Final = 7
"""The first version of JoinGroup whose answer may leave the protocol's name out."""
MEMBERS_FROM: Final = 3
"""The first version of LeaveGroup that names several members."""
LOAD_IN_PROGRESS_FROM: Final = 2
"""The first version of TxnOffsetCommit whose clients are known to bear that code."""


def refuse(request: Message, version: int, code: ErrorCode, message: str | None = None) -> Message:
    """The answer to `request` that says `code`, with a sentence where the API has room for one."""
    return REFUSALS[type(request)](request, version, code, message)


def _join(
    request: JoinGroupRequest, version: int, code: ErrorCode, _: str | None
) -> JoinGroupResponse:
    name = None if version >= PROTOCOL_NULLABLE_FROM else ""
    return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=name)


def _heartbeat(
    _request: HeartbeatRequest, _version: int, code: ErrorCode, _: str | None
) -> HeartbeatResponse:
    # While groups are being loaded a member is taken to be one: it would only ask again.
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    return HeartbeatResponse(error_code=code)


def _leave(
    request: LeaveGroupRequest, version: int, code: ErrorCode, _: str | None
) -> LeaveGroupResponse:
    if version < MEMBERS_FROM or code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    members = [
        MemberResponse(
            member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
        )
        for member in request.members
    ]
    return LeaveGroupResponse(members=members)


def _commit(
    request: OffsetCommitRequest, _version: int, code: ErrorCode, _: str | None
) -> CommitResponse:
    return refused_commit(request, code)


def _transactional_commit(
    request: TxnOffsetCommitRequest, version: int, code: ErrorCode, _: str | None
) -> CommitResponse:
    if version < LOAD_IN_PROGRESS_FROM and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refused_commit(request, code)


def _fetch(
    request: OffsetFetchRequest, _version: int, code: ErrorCode, _: str | None
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            for group in request.groups
        ]
    )


def _describe(
    request: describe.DescribeGroupsRequest, _version: int, code: ErrorCode, _: str | None
) -> describe.DescribeGroupsResponse:
    return describe.DescribeGroupsResponse(
        groups=[describe.DescribedGroup(group_id=id_, error_code=code) for id_ in request.groups]
    )


def _consumer_describe(
    request: consumer_describe.ConsumerGroupDescribeRequest,
    _version: int,
    code: ErrorCode,
    message: str | None,
) -> consumer_describe.ConsumerGroupDescribeResponse:
    return consumer_describe.ConsumerGroupDescribeResponse(
        groups=[
            consumer_describe.DescribedGroup(group_id=id_, error_code=code, error_message=message)
            for id_ in request.group_ids
        ]
    )


def _share_describe(
    request: share_describe.ShareGroupDescribeRequest,
    _version: int,
    code: ErrorCode,
    message: str | None,
) -> share_describe.ShareGroupDescribeResponse:
    return share_describe.ShareGroupDescribeResponse(
        groups=[
            share_describe.DescribedGroup(group_id=id_, error_code=code, error_message=message)
            for id_ in request.group_ids
        ]
    )


def _streams_describe(
    request: streams_describe.StreamsGroupDescribeRequest,
    _version: int,
    code: ErrorCode,
    message: str | None,
) -> streams_describe.StreamsGroupDescribeResponse:
    return streams_describe.StreamsGroupDescribeResponse(
        groups=[
            streams_describe.DescribedGroup(group_id=id_, error_code=code, error_message=message)
            for id_ in request.group_ids
        ]
    )


def _share_offsets(
    request: DescribeShareGroupOffsetsRequest, _version: int, code: ErrorCode, message: str | None
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=code, error_message=message
            )
            for group in request.groups
        ]
    )


def _delete(
    request: DeleteGroupsRequest, _version: int, code: ErrorCode, _: str | None
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=id_, error_code=code) for id_ in request.groups_names
        ]
    )


REFUSALS: Final[Mapping[type[Message], Callable[[Any, int, ErrorCode, str | None], Message]]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: lambda _, __, code, ___: SyncGroupResponse(error_code=code),
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    ConsumerGroupHeartbeatRequest: lambda _, __, code, message: ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message
    ),
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _transactional_commit,
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: lambda _, __, code, ___: OffsetDeleteResponse(error_code=code),
    ListGroupsRequest: lambda _, __, code, ___: ListGroupsResponse(error_code=code),
    describe.DescribeGroupsRequest: _describe,
    consumer_describe.ConsumerGroupDescribeRequest: _consumer_describe,
    DeleteGroupsRequest: _delete,
    ShareGroupHeartbeatRequest: lambda _, __, code, message: ShareGroupHeartbeatResponse(
        error_code=code, error_message=message
    ),
    share_describe.ShareGroupDescribeRequest: _share_describe,
    StreamsGroupHeartbeatRequest: lambda _, __, code, message: StreamsGroupHeartbeatResponse(
        error_code=code, error_message=message
    ),
    streams_describe.StreamsGroupDescribeRequest: _streams_describe,
    DescribeShareGroupOffsetsRequest: _share_offsets,
    AlterShareGroupOffsetsRequest: lambda _, __, code, message: AlterShareGroupOffsetsResponse(
        error_code=code, error_message=message
    ),
    DeleteShareGroupOffsetsRequest: lambda _, __, code, message: DeleteShareGroupOffsetsResponse(
        error_code=code, error_message=message
    ),
}
