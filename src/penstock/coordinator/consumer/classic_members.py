"""Members of the classic protocol inside a consumer group.

While a group moves from one protocol to the other both kinds of members share it. A classic member
is reconciled like any other, only in its own words: its generation is its member epoch, JoinGroup
reports what it owns and brings it one step further, SyncGroup fetches its partitions, and Heartbeat
tells it to join again (REBALANCE_IN_PROGRESS) when there is a step to take. Nothing waits here:
every request is answered at once.

Such a member has no heartbeat between the steps that carries its owned partitions, so each step has
its timer: it must join within its rebalance timeout of being told to, and sync within the same time
of joining.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.classic.responses import join_error, joined, leavers, member_left
from penstock.coordinator.classic.responses import left as left_response
from penstock.coordinator.consumer.embedded import (
    read_subscription,
    to_partitions,
    write_assignment,
)
from penstock.coordinator.consumer.engine import Engine
from penstock.coordinator.consumer.heartbeat import (
    check_room,
    known_member,
    known_static_member,
    new_member_id,
)
from penstock.coordinator.consumer.member import ClassicPart, Member, Profile, Progress
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.group import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.reconcile import MemberState
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_FROM = 4
"""From this version on a new dynamic member is given an id first and joins with it."""
REBALANCE_TIMEOUT_FROM = 1
"""Before this version of JoinGroup the session timeout is also the rebalance timeout."""


def join(
    engine: Engine, request: JoinGroupRequest, caller: Caller, now_ms: int, *, assign: bool
) -> Effects:
    """JoinGroup; ApiError if it is refused. Without `assign` no new target is made."""
    if not engine.environment.config.may_mix:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Group {engine.group_id} has members of the consumer protocol, and "
            "group.consumer.migration.policy does not let it change.",
        )
    member_id = request.member_id or new_member_id(engine)
    check_room(engine, member_id, request.group_instance_id)
    _check_protocols(engine, request)
    if (
        not request.member_id
        and request.group_instance_id is None
        and caller.version >= MEMBER_ID_REQUIRED_FROM
    ):
        response = join_error(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return Effects.reply(caller, response)
    subscription = read_subscription(request.protocols[0].metadata)
    _check_not_fenced(engine, request, subscription)
    effects = Effects()
    member = _joining_member(engine, request, member_id, effects)
    profile = _profile(member.profile, request, subscription, caller)
    resubscribed = engine.set_profile(member, profile, effects)
    if assign:
        engine.assign_if_due(effects, now_ms)
    owned = to_partitions(
        ((t.topic, t.partitions) for t in subscription.owned_partitions),
        engine.environment.topics,
    )
    engine.reconcile(member, frozenset(owned), effects, now_ms, resubscribed=resubscribed)
    engine.heard_from(member, effects, now_ms)
    engine.await_sync(member, effects, now_ms)
    effects.answer(
        caller,
        joined(
            caller,
            member_id=member.member_id,
            generation=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            leader="",
            members=[],
        ),
    )
    return effects


def sync(engine: Engine, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Effects:
    """SyncGroup: the partitions of a member that has joined."""
    member = _classic_member(engine, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    metadata = _check_protocol_of_sync(member, request)
    effects = Effects()
    if (
        member.epoch < engine.roster.assignment_epoch
        and member.progress.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        engine.await_join(member, effects, now_ms)
        effects.answer(caller, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return effects
    engine.synced(member, effects)
    engine.heard_from(member, effects, now_ms)
    effects.answer(
        caller,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(
                member.progress.assigned, metadata, engine.environment.topics
            ),
        ),
    )
    return effects


def heartbeat(engine: Engine, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Effects:
    """Heartbeat: whether there is a step for which the member must join."""
    member = _classic_member(engine, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    effects = Effects()
    engine.heard_from(member, effects, now_ms)
    state = member.progress.state
    code = ErrorCode.NONE
    if (
        member.epoch < engine.roster.assignment_epoch
        or state is MemberState.UNREVOKED_PARTITIONS
        or (state is MemberState.UNRELEASED_PARTITIONS and not engine.waits_for_others(member))
    ):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        engine.await_join(member, effects, now_ms)
    effects.answer(caller, HeartbeatResponse(error_code=code))
    return effects


def leave(
    engine: Engine, request: LeaveGroupRequest, caller: Caller
) -> tuple[list[Member], LeaveGroupResponse]:
    """LeaveGroup: the members to remove, and the answer. Nothing is removed yet.

    Members of the consumer protocol are removed by it, too: administrators have no other request.
    """
    going: dict[str, Member] = {}
    answers: list[MemberResponse] = []
    for leaver in leavers(request, caller):
        try:
            member = _leaver(engine, leaver)
            going[member.member_id] = member
            answers.append(
                MemberResponse(
                    member_id=leaver.member_id, group_instance_id=leaver.group_instance_id
                )
            )
        except ApiError as e:
            answers.append(member_left(leaver, e.code))
    return list(going.values()), left_response(caller, answers)


def _leaver(engine: Engine, leaver: MemberIdentity) -> Member:
    if leaver.group_instance_id is None:
        return known_member(engine, leaver.member_id)
    # An administrator names a static member without knowing its member id.
    member_id = leaver.member_id or engine.roster.static_ids.get(leaver.group_instance_id, "")
    return known_static_member(engine, member_id, leaver.group_instance_id)


def _classic_member(engine: Engine, member_id: str, instance_id: str | None) -> Member:
    if instance_id is None:
        member = known_member(engine, member_id)
    else:
        member = known_static_member(engine, member_id, instance_id)
    if not member.is_classic:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} speaks the consumer protocol, not the classic one.",
        )
    return member


def _check_generation(member: Member, generation: int) -> None:
    if member.epoch != generation:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The generation {generation} is not the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )


def _check_protocol_of_sync(member: Member, request: SyncGroupRequest) -> bytes:
    """The metadata of the member's protocol; ApiError if the request names another."""
    assert member.profile.classic is not None
    name, metadata = member.profile.classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        name,
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member.member_id} was told the protocol {CONSUMER_PROTOCOL_TYPE}/{name}.",
        )
    return metadata


def _check_protocols(engine: Engine, request: JoinGroupRequest) -> None:
    """All classic members must share a protocol, or the group could not become classic again."""
    offered = {p.name for p in request.protocols}
    for member in engine.roster.members.values():
        if member.profile.classic is not None and member.member_id != request.member_id:
            offered.intersection_update(name for name, _ in member.profile.classic.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not offered:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocols of member {request.member_id} are not those of the group.",
        )


def _check_not_fenced(
    engine: Engine, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription
) -> None:
    """A stranger may come with an id of its own, since ids are given out without being kept. One
    that owns partitions has been a member and was dropped: others may own them by now.
    """
    is_stranger = bool(request.member_id) and request.member_id not in engine.roster.members
    if is_stranger and any(t.partitions for t in subscription.owned_partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {engine.group_id} has no member {request.member_id} that owns partitions.",
        )


def _joining_member(
    engine: Engine, request: JoinGroupRequest, member_id: str, effects: Effects
) -> Member:
    roster = engine.roster
    instance_id = request.group_instance_id
    if instance_id is not None:
        before = roster.static_ids.get(instance_id)
        if request.member_id:
            return known_static_member(engine, member_id, instance_id)
        if before is not None:
            return engine.replace_static(roster.members[before], member_id, effects)
    return roster.members.get(member_id) or Member(member_id, Profile(), Progress())


def _profile(
    before: Profile,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
) -> Profile:
    timeout_ms = request.rebalance_timeout_ms
    if caller.version < REBALANCE_TIMEOUT_FROM:
        timeout_ms = request.session_timeout_ms
    rack = subscription.rack_id
    return Profile(
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=before.rack_id if rack is None else rack,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=timeout_ms,
        classic=ClassicPart(
            request.session_timeout_ms,
            tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        ),
    )
