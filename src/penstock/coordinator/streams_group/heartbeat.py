"""StreamsGroupHeartbeat: the whole conversation with a member of a streams group.

A member makes up its id, joins with epoch 0 and its topology, repeats its epoch at every heartbeat,
and leaves with -1. It says which tasks it owns when that changes; the answer carries its epoch, its
tasks when those changed or it joins or owns others, and statuses: what keeps tasks from being
assigned, or that the application shall end.

The first member of a group brings the topology. Others may come with an older epoch (and are told
so) or with the same topology, but not with a newer one.

Refused, as in Kafka 4.3: static members, offsets of tasks, warm-up tasks, regular expressions.

Where this is kinder than Kafka: a member that is known may join again when the group is full, and
one that says it owns other tasks than it was given is told again, since the answer may have been
lost that told it; but not while a new target is due, which will say more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.consumer.heartbeat import UNKNOWN_TIMEOUT_MS, require, require_text
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.reconcile import JOIN_EPOCH, LEAVE_EPOCH, MemberState
from penstock.coordinator.streams_group import topology as topologies
from penstock.coordinator.streams_group.engine import Engine
from penstock.coordinator.streams_group.resolving import Problem, Resolved, StatusCode
from penstock.coordinator.streams_group.roster import Endpoint, Member, Profile
from penstock.coordinator.streams_group.tasks import TypedTask, flatten, grouped
from penstock.coordinator.streams_group.topology import Topology
from penstock.wire.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

CLIENT_TAGS_MAX: Final = 100
"""Of a member; Kafka Streams allows 5."""


def check_request(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY for what no group could accept."""
    require(request.instance_id is None, "Static membership is not yet supported.")
    require(request.task_offsets is None, "TaskOffsets are not supported yet.")
    require(request.task_end_offsets is None, "TaskEndOffsets are not supported yet.")
    require(not request.warmup_tasks, "WarmupTasks are not supported yet.")
    require_text(request.member_id, "MemberId")
    require_text(request.group_id, "GroupId")
    require_text(request.rack_id, "RackId")
    require(request.member_epoch >= LEAVE_EPOCH, f"{request.member_epoch} is no epoch of a member.")
    require(
        len(request.client_tags or ()) <= CLIENT_TAGS_MAX,
        f"A member can have {CLIENT_TAGS_MAX} tags, and no more.",
    )
    told = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    require(
        all(tasks is None for tasks in told) or None not in told,
        "If one task-type is non-null, all must be non-null.",
    )
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    else:
        require(request.topology is None, "Topology can only be provided when (re-)joining.")


def _check_join(request: StreamsGroupHeartbeatRequest) -> None:
    require(
        request.rebalance_timeout_ms != UNKNOWN_TIMEOUT_MS,
        "RebalanceTimeoutMs must be provided in first request.",
    )
    for name in ("active", "standby", "warmup"):
        tasks = getattr(request, f"{name}_tasks")
        require(
            tasks is not None and not tasks,
            f"{name.capitalize()}Tasks must be empty when (re-)joining.",
        )
    if request.topology is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topology must be non-null when (re-)joining.")
    topologies.check(request.topology.epoch, request.topology.subtopologies)


class _Found(NamedTuple):
    """What a request finds, before it changes anything."""

    topology: Topology
    is_new_group: bool
    was_empty: bool


def heartbeat(
    engine: Engine, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> Effects:
    """A checked request of a member that joins or stays; ApiError if it is refused."""
    # Everything that may refuse comes before the first change.
    found = _look(engine, request)
    owned = _owned(request)
    plan = engine.plan(found.topology)
    _check_tasks(plan.resolved, owned)
    effects = Effects()
    known = engine.roster.members.get(request.member_id)
    profile = _updated(Profile() if known is None else known.profile, request, caller)
    changed = engine.set_profile(request.member_id, profile, effects)
    member = engine.roster.member(request.member_id)
    if found.is_new_group:
        engine.begin_topology(plan, effects)
    engine.follow(plan, effects, changed=changed)
    if found.was_empty:
        engine.gather(effects, now_ms)
    delay = engine.assign_if_due(effects, now_ms)
    moved = engine.reconcile(member, owned, effects, now_ms)
    engine.heard_from(member, effects, now_ms)
    if request.shutdown_application:
        engine.shutdown_by = engine.shutdown_by or request.member_id
    moved = moved or request.member_epoch == JOIN_EPOCH
    if moved and member.profile.endpoint is not None:
        engine.endpoint_epoch += 1
    differs = delay is None and owned is not None and owned != member.progress.assigned.keys()
    answer = _answer(engine, member, request, with_tasks=moved or differs)
    if found.is_new_group:
        # As in Kafka, which keeps nothing of a new group beside its records.
        engine.endpoint_epoch = answer.endpoint_information_epoch = 0
    stale = _stale(member, found)
    problems = (stale, delay, plan.resolved.problem, _shutdown(engine))
    answer.status = [Status(status_code=p.code, status_detail=p.detail) for p in problems if p]
    effects.answer(caller, answer)
    return effects


def leave(engine: Engine, request: StreamsGroupHeartbeatRequest, caller: Caller) -> Effects:
    """A member goes by its own will; ApiError if the group has no such member."""
    _known(engine, request.member_id)
    effects = Effects()
    if request.shutdown_application:
        engine.shutdown_by = engine.shutdown_by or request.member_id
    engine.leave(request.member_id, effects)
    effects.answer(
        caller,
        StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        ),
    )
    return effects


# -- what may be refused -----------------------------------------------------------------------


def _look(engine: Engine, request: StreamsGroupHeartbeatRequest) -> _Found:
    roster = engine.roster
    limit = engine.environment.config.group_streams_max_size
    is_joining = request.member_epoch == JOIN_EPOCH
    if is_joining and len(roster.members) >= limit and request.member_id not in roster.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group is full: it has {limit} members (group.streams.max.size).",
        )
    if not is_joining:
        _check_epoch(_known(engine, request.member_id), request)
    return _Found(_topology(engine, request), roster.topology is None, not roster.members)


def _known(engine: Engine, member_id: str) -> Member:
    member = engine.roster.members.get(member_id)
    if member is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {engine.group_id}.",
        )
    return member


def _check_epoch(member: Member, request: StreamsGroupHeartbeatRequest) -> None:
    """The previous epoch is good, too, if the member owns nothing else: its answer was lost."""
    received, progress = request.member_epoch, member.progress
    owned = _owned(request)
    if progress.state is MemberState.UNKNOWN and (owned is None or owned):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this coordinator does not know: give up all tasks and "
            "join again.",
        )
    answer_was_lost = (
        received == progress.previous_epoch
        and received < progress.epoch
        and owned is not None
        and owned <= progress.assigned.keys()
    )
    if received == progress.epoch or answer_was_lost:
        return
    relation = "greater" if received > progress.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({received}) than the one known "
        f"by the group coordinator ({progress.epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def _topology(engine: Engine, request: StreamsGroupHeartbeatRequest) -> Topology:
    """The topology of the group, which is the request's if there is none yet."""
    present, told = engine.roster.topology, request.topology
    if told is None:
        if present is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {engine.group_id} has no topology: join it with one.",
            )
        return present
    topology = Topology(told.epoch, told.subtopologies)
    if present is None:
        return topology
    require(
        told.epoch < present.epoch or topology == present,
        "Topology updates are not supported yet.",
    )
    return present


def _owned(request: StreamsGroupHeartbeatRequest) -> frozenset[TypedTask] | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return frozenset(flatten(active, standby, warmup))


def _check_tasks(resolved: Resolved, owned: frozenset[TypedTask] | None) -> None:
    """What a member owns must be tasks of the topology, if those are known."""
    if not resolved.is_ready:
        return
    for _, subtopology_id, number in owned or ():
        subtopology = resolved.subtopologies.get(subtopology_id)
        require(
            subtopology is not None and 0 <= number < subtopology.task_count,
            f"The topology has no task {subtopology_id}_{number}.",
        )


# -- what is answered --------------------------------------------------------------------------


def _updated(before: Profile, request: StreamsGroupHeartbeatRequest, caller: Caller) -> Profile:
    """What is null or absent in a request has not changed."""
    endpoint, tags, timeout_ms = before.endpoint, before.tags, before.rebalance_timeout_ms
    if request.user_endpoint is not None:
        endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
    if request.client_tags is not None:
        tags = tuple(sorted({tag.key: tag.value for tag in request.client_tags}.items()))
    if request.rebalance_timeout_ms != UNKNOWN_TIMEOUT_MS:
        timeout_ms = request.rebalance_timeout_ms
    return Profile(
        before.rack_id if request.rack_id is None else request.rack_id,
        caller.client_id,
        caller.client_host,
        timeout_ms,
        before.topology_epoch if request.topology is None else request.topology.epoch,
        before.process_id if request.process_id is None else request.process_id,
        endpoint,
        tags,
    )


def _answer(
    engine: Engine, member: Member, request: StreamsGroupHeartbeatRequest, *, with_tasks: bool
) -> StreamsGroupHeartbeatResponse:
    answer = StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.progress.epoch,
        heartbeat_interval_ms=engine.config.streams_heartbeat_interval_ms,
    )
    if with_tasks:
        tasks = grouped(member.progress.assigned)
        answer.active_tasks, answer.standby_tasks, answer.warmup_tasks = tasks
    if engine.endpoint_epoch != request.endpoint_information_epoch:
        answer.partitions_by_user_endpoint = engine.endpoints
    answer.endpoint_information_epoch = engine.endpoint_epoch
    return answer


def _stale(member: Member, found: _Found) -> Problem | None:
    """The member runs an older topology than the group."""
    known, present = member.profile.topology_epoch, found.topology.epoch
    if found.is_new_group or known >= present:
        return None
    return Problem(
        StatusCode.STALE_TOPOLOGY,
        f"The member's topology epoch {known} is behind the group's, {present}.",
    )


def _shutdown(engine: Engine) -> Problem | None:
    if engine.shutdown_by is None:
        return None
    return Problem(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Member {engine.shutdown_by} has met a fatal error and asks the whole application to end.",
    )
