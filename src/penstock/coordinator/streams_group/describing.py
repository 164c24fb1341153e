"""What StreamsGroupDescribe shows of a streams group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.coordinator.java_order import timeline_map_order
from penstock.coordinator.streams_group.engine import Engine
from penstock.coordinator.streams_group.resolving import ResolvedSubtopology, ResolvedTopic
from penstock.coordinator.streams_group.roster import Member
from penstock.coordinator.streams_group.tasks import NO_TASKS, TypedTask, grouped
from penstock.wire.messages import streams_group_describe as wire
from penstock.wire.messages import streams_group_heartbeat as heartbeat

NOTHING_DECIDED: Final[Mapping[str, ResolvedTopic]] = {}


def described(engine: Engine, state: str) -> wire.DescribedGroup:
    roster = engine.roster
    return wire.DescribedGroup(
        group_id=engine.group_id,
        group_state=state,
        group_epoch=roster.epoch,
        assignment_epoch=roster.assignment_epoch,
        topology=_topology(engine),
        members=[
            _member(roster.members[member_id], roster.target.get(member_id, NO_TASKS))
            for member_id in timeline_map_order(roster.members, roster.members_max)
        ],
    )


def _topology(engine: Engine) -> wire.Topology | None:
    """As it was told; where its topics are all there, with the partitions that they have."""
    topology, resolved = engine.roster.topology, engine.resolved
    if topology is None:
        return None
    decided: Mapping[str, ResolvedSubtopology] = {}
    if resolved is not None and resolved.is_ready:
        decided = resolved.subtopologies
    return wire.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _subtopology(one, decided.get(one.subtopology_id))
            for one in topology.subtopologies.values()
        ],
    )


def _subtopology(
    one: heartbeat.Subtopology, resolved: ResolvedSubtopology | None
) -> wire.Subtopology:
    sources = NOTHING_DECIDED if resolved is None else resolved.repartition_sources
    changelogs = NOTHING_DECIDED if resolved is None else resolved.changelogs
    return wire.Subtopology(
        subtopology_id=one.subtopology_id,
        source_topics=sorted(one.source_topics),
        repartition_sink_topics=sorted(one.repartition_sink_topics),
        repartition_source_topics=_topics(one.repartition_source_topics, sources),
        state_changelog_topics=_topics(one.state_changelog_topics, changelogs),
    )


def _topics(
    infos: Iterable[heartbeat.TopicInfo], decided: Mapping[str, ResolvedTopic]
) -> list[wire.TopicInfo]:
    return [
        wire.TopicInfo(
            name=info.name,
            partitions=decided[info.name].partitions if info.name in decided else info.partitions,
            replication_factor=info.replication_factor,
            topic_configs=[wire.KeyValue(key=c.key, value=c.value) for c in info.topic_configs],
        )
        for info in sorted(infos, key=lambda info: info.name)
    ]


def _member(member: Member, target: frozenset[TypedTask]) -> wire.Member:
    profile = member.profile
    endpoint = profile.endpoint
    return wire.Member(
        member_id=member.member_id,
        member_epoch=member.progress.epoch,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        topology_epoch=profile.topology_epoch,
        process_id=profile.process_id,
        user_endpoint=None
        if endpoint is None
        else wire.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[wire.KeyValue(key=key, value=value) for key, value in profile.tags],
        assignment=_assignment(member.progress.assigned),
        target_assignment=_assignment(target),
    )


def _assignment(tasks: Iterable[TypedTask]) -> wire.Assignment:
    active, standby, warmup = (
        [wire.TaskIds(subtopology_id=t.subtopology_id, partitions=t.partitions) for t in of_type]
        for of_type in grouped(tasks)
    )
    return wire.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
