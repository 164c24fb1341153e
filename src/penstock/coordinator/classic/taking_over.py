"""An empty group of another protocol becomes a classic one: the first that comes decides."""

from __future__ import annotations

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.group import Environment, Group
from penstock.wire.messages.join_group import JoinGroupRequest


def take_over(
    group: Group, environment: Environment, request: JoinGroupRequest, caller: Caller, now_ms: int
) -> Effects:
    """Answer a JoinGroup that found an empty `group`, whose `successor` is set; ApiError if the
    member should be known already. Timers of the old group find nothing to do.
    """
    if request.member_id:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    effects = Effects(records=group.tombstones())
    group.successor = ClassicGroup(group.group_id, environment)
    effects.extend(group.successor.handle(request, caller, now_ms))
    return effects
