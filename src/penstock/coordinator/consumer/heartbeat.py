"""ConsumerGroupHeartbeat: the whole conversation with a member of the consumer protocol.

A member joins with epoch 0, repeats its epoch at every heartbeat, and leaves with -1 (or, if
static, with -2 when it means to come back). It says what it subscribes to when that changes, and
what it owns when that changes; the answer carries its epoch, and its partitions when those changed
or the request was a full one.

A join with a regular expression that is new to the group is answered before the expression is
resolved, as in Kafka: the topics come with the next heartbeat.

A member whose last answer was lost repeats its previous epoch: it is answered again if it owns
nothing that is not its own. Epoch 0 is always accepted: a member that starts again owns nothing.

Where this is kinder than Kafka: a static member may repeat its own join (Kafka answers
UNRELEASED_INSTANCE_ID to a join whose answer was lost, until the session ends), and may come
back to a group that is full; a member that changes its regular expression keeps the partitions that
the new one matches, too (Kafka takes all away until the expression is resolved).
"""

from __future__ import annotations

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import uuid_text
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.consumer.engine import Engine
from penstock.coordinator.consumer.member import Member, Profile, Progress
from penstock.coordinator.consumer.partitions import by_topic, flatten
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.reconcile import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

MEMBER_ID_FROM_CLIENT = 1
"""From this version on the client makes up its member id."""
UNKNOWN_TIMEOUT_MS = -1


def check_request(
    request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig
) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for what no group could accept."""
    if version >= MEMBER_ID_FROM_CLIENT or request.member_epoch != JOIN_EPOCH:
        require_text(request.member_id, "MemberId")
    require_text(request.group_id, "GroupId")
    require_text(request.instance_id, "InstanceId")
    require_text(request.rack_id, "RackId")
    require(
        request.member_epoch >= STATIC_LEAVE_EPOCH, f"{request.member_epoch} is no member epoch."
    )
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        require(
            request.instance_id is not None,
            "Only a member with an instance id can leave with epoch -2.",
        )
    offered = config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in offered:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.server_assignor}; choose one of "
            f"{', '.join(offered)} (group.consumer.assignors).",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    require(
        request.rebalance_timeout_ms != UNKNOWN_TIMEOUT_MS,
        "A member that joins must name its rebalance timeout.",
    )
    require(
        request.topic_partitions is not None and not request.topic_partitions,
        "A member that joins must say that it owns no partitions (an empty list).",
    )
    require(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "A member that joins must subscribe by topic names or by a regular expression.",
    )


def require_text(value: str | None, name: str) -> None:
    """Null is no value; blanks are an error, in the words that Kafka's clients know."""
    require(value is None or bool(value.strip()), f"{name} can't be empty.")


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def heartbeat(
    engine: Engine, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> Effects:
    """A checked request of a member that joins or stays; ApiError if it is refused."""
    effects = Effects()
    # Everything that may refuse comes before the first change.
    engine.subscriptions.check(request.subscribed_topic_regex)
    member = _find_member(engine, request, effects)
    profile = _updated_profile(member.profile, request, caller)
    owned = None
    if request.topic_partitions is not None:
        owned = frozenset(flatten(request.topic_partitions))
    joins = request.member_epoch == JOIN_EPOCH
    resubscribed = engine.set_profile(member, profile, effects)
    engine.seen_by(profile.topic_regex, caller.sees, effects, now_ms)
    if not joins:
        engine.resolve_regex(profile.topic_regex, effects, now_ms)
    engine.assign_if_due(effects, now_ms)
    changed = engine.reconcile(member, owned, effects, now_ms, resubscribed=resubscribed)
    engine.heard_from(member, effects, now_ms)
    is_full = (
        request.rebalance_timeout_ms != UNKNOWN_TIMEOUT_MS
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and owned is not None
    )
    effects.answer(caller, _answer(engine, member, with_assignment=changed or is_full))
    if joins:
        engine.resolve_regex(profile.topic_regex, effects, now_ms)
    return effects


def leaving_member(engine: Engine, request: ConsumerGroupHeartbeatRequest) -> Member:
    """The member that leaves; ApiError if the group has no such member."""
    if request.instance_id is None:
        return known_member(engine, request.member_id)
    return known_static_member(engine, request.member_id, request.instance_id)


def known_member(engine: Engine, member_id: str) -> Member:
    member = engine.roster.members.get(member_id)
    if member is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {engine.group_id} has no member {member_id}.",
        )
    return member


def known_static_member(engine: Engine, member_id: str, instance_id: str) -> Member:
    found = engine.roster.static_ids.get(instance_id)
    if found is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {engine.group_id} has no member with instance id {instance_id}.",
        )
    if found != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance id {instance_id} belongs to member {found} now, not to {member_id}.",
        )
    return engine.roster.members[found]


def left(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """The answer to a member that has left."""
    return ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )


def check_room(engine: Engine, member_id: str, instance_id: str | None) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for a newcomer to a full group."""
    limit = engine.environment.config.group_consumer_max_size
    roster = engine.roster
    is_known = member_id in roster.members or instance_id in roster.static_ids
    if len(roster.members) >= limit and not is_known:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group is full: it has {limit} members (group.consumer.max.size).",
        )


def new_member_id(engine: Engine) -> str:
    return uuid_text(engine.environment.rng.uuid())


def _find_member(
    engine: Engine, request: ConsumerGroupHeartbeatRequest, effects: Effects
) -> Member:
    """The member that sent the request; a new one if it joins."""
    roster = engine.roster
    if request.member_epoch != JOIN_EPOCH:
        if request.instance_id is None:
            member = known_member(engine, request.member_id)
        else:
            member = known_static_member(engine, request.member_id, request.instance_id)
        _check_epoch(member, request)
        return member
    check_room(engine, request.member_id, request.instance_id)
    member_id = request.member_id or new_member_id(engine)
    before = roster.static_ids.get(request.instance_id) if request.instance_id else None
    if before is not None and before != member_id:
        old = roster.members[before]
        if not old.is_classic and old.epoch != STATIC_LEAVE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Member {before} has not released instance id {request.instance_id} yet: it must "
                "leave, or its session must end, before another can join with it.",
            )
        return engine.replace_static(old, member_id, effects)
    return roster.members.get(member_id) or Member(member_id, Profile(), Progress())


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    received, current = request.member_epoch, member.epoch
    if received == current:
        return
    progress = member.progress
    answer_was_lost = (
        received == progress.previous_epoch
        and received < current
        and request.topic_partitions is not None
        and all(p in progress.assigned for p in flatten(request.topic_partitions))
    )
    if not answer_was_lost:
        relation = "greater" if received > current else "smaller"
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member epoch {received} is {relation} than the present one, {current}: give up all "
            "partitions and join again.",
        )


def _updated_profile(
    before: Profile, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> Profile:
    """What is null or absent in a request has not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return Profile(
        instance_id=_or(request.instance_id, before.instance_id),
        rack_id=_or(request.rack_id, before.rack_id),
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=before.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=before.topic_regex if regex is None else regex,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == UNKNOWN_TIMEOUT_MS
        else request.rebalance_timeout_ms,
        server_assignor=_or(request.server_assignor, before.server_assignor),
        classic=None,
    )


def _or(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def _answer(
    engine: Engine, member: Member, *, with_assignment: bool
) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if with_assignment:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(member.progress.assigned).items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=engine.config.consumer_heartbeat_interval_ms,
        assignment=assignment,
    )
