"""ShareGroupHeartbeat: the whole conversation with a member of a share group.

A member makes up its id, joins with epoch 0, repeats its epoch at every heartbeat, and leaves with
-1. It says what it subscribes to when that changes; the answer carries its epoch, and its
partitions when those changed or the request was a full one. A member whose last answer was lost
repeats its previous epoch.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.consumer.heartbeat import require, require_text
from penstock.coordinator.consumer.partitions import by_topic
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.share_group.engine import Engine
from penstock.coordinator.share_group.roster import JOIN_EPOCH, LEAVE_EPOCH, Member, Profile
from penstock.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBER_ID_CHARACTERS_MAX = 36


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for what no group could accept."""
    length = len(request.member_id)
    require(0 < length <= MEMBER_ID_CHARACTERS_MAX, "Invalid member id in the request.")
    require_text(request.member_id, "MemberId")
    require_text(request.group_id, "GroupId")
    require_text(request.rack_id, "RackId")
    if request.member_epoch == JOIN_EPOCH:
        require(
            bool(request.subscribed_topic_names),
            "SubscribedTopicNames must be set in first request.",
        )
    require(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


def heartbeat(
    engine: Engine, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> Effects:
    """A checked request of a member that joins or stays; ApiError if it is refused."""
    _check_member(engine, request)
    effects = Effects()
    known = engine.roster.members.get(request.member_id)
    before = Profile() if known is None else known.profile
    profile = _updated(before, request, caller)
    resubscribed = engine.set_profile(request.member_id, profile, effects)
    member = engine.roster.member(request.member_id)
    bumped = engine.follow(effects, resubscribed=resubscribed)
    engine.assign_if_due(effects, now_ms)
    changed = engine.reconcile(member, effects, forced=bumped)
    engine.heard_from(member, effects, now_ms)
    is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
    effects.answer(caller, _answer(engine, member, with_assignment=changed or is_full))
    engine.initialize_new(effects, now_ms)
    return effects


def leave(engine: Engine, request: ShareGroupHeartbeatRequest, caller: Caller) -> Effects:
    """A member goes by its own will; ApiError if the group has no such member."""
    _known(engine, request.member_id)
    effects = Effects()
    engine.leave(request.member_id, effects)
    effects.answer(
        caller,
        ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch),
    )
    return effects


def _check_member(engine: Engine, request: ShareGroupHeartbeatRequest) -> None:
    limit = engine.environment.config.group_share_max_size
    members = engine.roster.members
    if len(members) >= limit and request.member_id not in members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group is full: it has {limit} members (group.share.max.size).",
        )
    received = request.member_epoch
    if received == JOIN_EPOCH:
        return
    progress = _known(engine, request.member_id).progress
    answer_was_lost = received == progress.previous_epoch and received < progress.epoch
    if received != progress.epoch and not answer_was_lost:
        relation = "greater" if received > progress.epoch else "smaller"
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member epoch {received} is {relation} than the present one, {progress.epoch}: give "
            "up all partitions and join again.",
        )


def _known(engine: Engine, member_id: str) -> Member:
    member = engine.roster.members.get(member_id)
    if member is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Group {engine.group_id} has no member {member_id}."
        )
    return member


def _updated(before: Profile, request: ShareGroupHeartbeatRequest, caller: Caller) -> Profile:
    """What is null in a request has not changed."""
    names = request.subscribed_topic_names
    return Profile(
        before.rack_id if request.rack_id is None else request.rack_id,
        caller.client_id,
        caller.client_host,
        before.topic_names if names is None else tuple(sorted(set(names))),
    )


def _answer(
    engine: Engine, member: Member, *, with_assignment: bool
) -> ShareGroupHeartbeatResponse:
    assignment = None
    if with_assignment:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(member.progress.assigned).items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.progress.epoch,
        heartbeat_interval_ms=engine.config.share_heartbeat_interval_ms,
        assignment=assignment,
    )
