"""A topology on the topics that exist: how many tasks it has, and which topics it still needs.

Partitions are decided in this order, each step on what the ones before have found:

    topic                  gets                                          unless
    ---------------------  --------------------------------------------  --------------------------
    fixed repartition      what the topology says
    flexible repartition   the most of what its writers read             no writer's count is known:
                                                                         the topology is invalid
    copartitioned ones     the count of the source topics among them,    sources, or fixed ones,
                           else of the fixed ones, else the most         differ: not resolved
    changelog              the most of what its subtopology reads

A topic that exists counts as it is, and has to agree with what was decided. A function of topology
and topics alone. Where Kafka compares the fixed repartition topics of a copartition group with
those of the whole topology, only the group's own count here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.streams_group.topology import Topology, source_names
from penstock.coordinator.topics import TopicsView
from penstock.wire.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, TopicInfo

NAMED_MAX: Final = 3
"""How many topics a sentence names."""


class StatusCode(IntEnum):
    """What a heartbeat's answer tells a member beside its tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Problem(NamedTuple):
    """Why no tasks can be assigned."""

    code: StatusCode
    detail: str


class ResolvedTopic(NamedTuple):
    """A repartition or changelog topic as it has to be."""

    info: TopicInfo
    partitions: int


class ResolvedSubtopology(NamedTuple):
    source: Subtopology
    task_count: int
    """Topics with fewer partitions have none for the last tasks."""
    repartition_sources: Mapping[str, ResolvedTopic]
    changelogs: Mapping[str, ResolvedTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


class Resolved(NamedTuple):
    subtopologies: Mapping[str, ResolvedSubtopology]
    """By id, in its order; empty if the topics do not fit."""
    missing: Mapping[str, ResolvedTopic]
    """Internal topics that have to be created, in the order of their names."""
    problem: Problem | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Unfit(Exception):
    """The topics that exist do not fit the topology."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(code, detail)


def resolve(topology: Topology, topics: TopicsView) -> Resolved:
    """STREAMS_INVALID_TOPOLOGY if no topics could make the topology work."""
    try:
        _check_sources(topology, topics)
        counts = _Counts(topology, topics)
        subtopologies = {id_: _resolved(one, counts) for id_, one in topology.subtopologies.items()}
        missing = _missing(subtopologies, topics)
    except _Unfit as e:
        return Resolved({}, {}, e.problem)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_some(missing)}"
        problem = Problem(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return Resolved(subtopologies, missing, problem)


def _check_sources(topology: Topology, topics: TopicsView) -> None:
    names = {name for one in topology.subtopologies.values() for name in one.source_topics}
    missing = sorted(name for name in names if topics.partition_count(name) is None)
    if missing:
        raise _Unfit(
            StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_some(missing)} are missing."
        )


class _Counts:
    """How many partitions each topic of a topology has or shall have; made in one go."""

    def __init__(self, topology: Topology, topics: TopicsView) -> None:
        self._topics = topics
        self._subtopologies = topology.subtopologies.values()
        self._fixed = {
            topic.name
            for one in self._subtopologies
            for topic in one.repartition_source_topics
            if topic.partitions
        }
        self.decided = self._repartition()
        for one in self._subtopologies:
            for group in one.copartition_groups:
                self._copartition(_names_of(group, one), one)
        for one in self._subtopologies:
            most = self.most(one)
            self.decided.update((topic.name, most) for topic in one.state_changelog_topics)

    def __getitem__(self, name: str) -> int:
        """Of a topic that exists, or was decided."""
        count = self._topics.partition_count(name)
        return self.decided[name] if count is None else count

    def most(self, one: Subtopology) -> int:
        """The most that a subtopology reads: the number of its tasks."""
        return max(self[name] for name in source_names(one))

    # -- repartition topics --------------------------------------------------------------------

    def _repartition(self) -> dict[str, int]:
        decided = {
            topic.name: topic.partitions
            for one in self._subtopologies
            for topic in one.repartition_source_topics
            if topic.partitions
        }
        left = [one for one in self._subtopologies if one.repartition_sink_topics]
        while left:
            waiting = [one for one in left if not self._decide_sinks(one, decided)]
            if len(waiting) == len(left):
                raise ApiError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    "The partitions of some repartition topics cannot be found: the topology has a "
                    "loop without a source topic.",
                )
            left = waiting
        read = {t.name for one in self._subtopologies for t in one.repartition_source_topics}
        unwritten = sorted(read - decided.keys())
        if unwritten:
            raise ApiError(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No subtopology writes to the repartition topics {_some(unwritten)}.",
            )
        return decided

    def _decide_sinks(self, one: Subtopology, decided: dict[str, int]) -> bool:
        """Decide what a subtopology writes to; False if nothing is known of what it reads."""
        sinks = [name for name in one.repartition_sink_topics if name not in decided]
        repartition = [topic.name for topic in one.repartition_source_topics]
        found = [decided[name] for name in repartition if name in decided]
        found += [self._topics.partition_count(name) or 0 for name in one.source_topics]
        if not sinks:
            return True
        if not found:
            return False
        decided.update(dict.fromkeys(sinks, max(found)))
        return True

    # -- copartition groups --------------------------------------------------------------------

    def _copartition(self, names: set[str], one: Subtopology) -> None:
        repartition = {t.name for t in one.repartition_source_topics} & names
        fixed = repartition & self._fixed
        leading = (names - repartition) or fixed
        if leading:
            count = self._same(leading)
        else:
            count = max((self[name] for name in repartition), default=0)
        for name in sorted(fixed):
            if self[name] != count:
                raise _Unfit(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Repartition topic {name} has {self[name]} partitions, and the source topics "
                    f"that it is joined with have {count}.",
                )
        self.decided.update(dict.fromkeys(repartition, count))

    def _same(self, names: Iterable[str]) -> int:
        counts = {name: self[name] for name in sorted(names)}
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name}={count}" for name, count in counts.items())
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Topics that are joined must have equally many partitions: {told}.",
            )
        return next(iter(counts.values()))


def _names_of(group: CopartitionGroup, one: Subtopology) -> set[str]:
    sources = {one.source_topics[index] for index in group.source_topics}
    return sources | {
        one.repartition_source_topics[index].name for index in group.repartition_source_topics
    }


def _resolved(one: Subtopology, counts: _Counts) -> ResolvedSubtopology:
    return ResolvedSubtopology(
        one,
        counts.most(one),
        _internal(one.repartition_source_topics, counts),
        _internal(one.state_changelog_topics, counts),
    )


def _internal(infos: Iterable[TopicInfo], counts: _Counts) -> dict[str, ResolvedTopic]:
    return {
        info.name: ResolvedTopic(info, info.partitions or counts.decided[info.name])
        for info in infos
    }


def _missing(
    subtopologies: Mapping[str, ResolvedSubtopology], topics: TopicsView
) -> dict[str, ResolvedTopic]:
    """The internal topics that do not exist; those that do must have as many partitions as
    decided.
    """
    wanted = {
        name: topic
        for one in subtopologies.values()
        for name, topic in (*one.repartition_sources.items(), *one.changelogs.items())
    }
    missing = {}
    for name in sorted(wanted):
        found, topic = topics.partition_count(name), wanted[name]
        if found is None:
            missing[name] = topic
        elif found != topic.partitions:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Topic {name} must have {topic.partitions} partitions, and has {found}.",
            )
    return missing


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - NAMED_MAX
    told = ", ".join(names[:NAMED_MAX])
    return f"{told} and {more} additional topics" if more > 0 else told
