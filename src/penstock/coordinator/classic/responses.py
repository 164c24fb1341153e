"""Answers of the classic protocol's members in the shape that each version wants.

Until version 6 JoinGroup has no null for the protocol's name: an empty one stands for it. Until
version 2 LeaveGroup has one member and its error in the place of the whole request's.
"""

from __future__ import annotations

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Caller
from penstock.coordinator.refusals import MEMBERS_FROM, PROTOCOL_NULLABLE_FROM
from penstock.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


def join_error(caller: Caller, code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup that led to no generation."""
    return JoinGroupResponse(
        error_code=code, member_id=member_id, protocol_name=_nullable("", caller)
    )


def joined(
    caller: Caller,
    *,
    member_id: str,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    members: list[JoinGroupResponseMember],
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """A JoinGroup that led to a generation; `members` is for the leader."""
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=protocol_type,
        protocol_name=_nullable(protocol_name or "", caller),
        leader=leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def left(caller: Caller, members: list[MemberResponse]) -> LeaveGroupResponse:
    """What became of each member of a LeaveGroup."""
    if caller.version >= MEMBERS_FROM:
        return LeaveGroupResponse(members=members)
    return LeaveGroupResponse(error_code=members[0].error_code)


def leavers(request: LeaveGroupRequest, caller: Caller) -> list[MemberIdentity]:
    """The members that a LeaveGroup of any version names."""
    if caller.version >= MEMBERS_FROM:
        return request.members
    return [MemberIdentity(member_id=request.member_id)]


def member_left(member: MemberIdentity, code: ErrorCode = ErrorCode.NONE) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=code,
    )


def _nullable(protocol_name: str, caller: Caller) -> str | None:
    if caller.version >= PROTOCOL_NULLABLE_FROM and not protocol_name:
        return None
    return protocol_name
