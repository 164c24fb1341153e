"""The topology of a streams application, as its first member has told it.

Immutable: a group keeps one, and members that come with the same epoch have to come with the same.
`check` refuses what no group could work with, before anything builds on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.names import INTERNAL_TOPICS, check_topic_name
from penstock.wire.messages import streams_group_describe as described
from penstock.wire.messages.streams_group_heartbeat import CopartitionGroup, Subtopology, TopicInfo

AnySubtopology: TypeAlias = Subtopology | described.Subtopology
"""As it is told, or described."""
TOPOLOGY_ELEMENTS_MAX: Final = 10_000
"""Subtopologies, topics, settings of topics and the like, together: what a group keeps in memory
and writes in one record. Kafka has no such limit.
"""
TOPOLOGY_CHARACTERS_MAX: Final = 1_000_000
"""Of all names and settings, together."""


class Topology:
    """One topology; equal if epoch and subtopologies are, in whatever order these come."""

    __slots__ = ("_subtopology_of", "epoch", "required_topics", "subtopologies")

    def __init__(self, epoch: int, subtopologies: Sequence[Subtopology]) -> None:
        self.epoch = epoch
        self.subtopologies: Mapping[str, Subtopology] = {
            one.subtopology_id: one for one in sorted(subtopologies, key=lambda s: s.subtopology_id)
        }
        """By id, in its order."""
        self._subtopology_of = {
            name: one.subtopology_id for one in subtopologies for name in source_names(one)
        }
        self.required_topics = frozenset(self._subtopology_of) | {
            topic.name for one in subtopologies for topic in one.state_changelog_topics
        }
        """Those that must be there before tasks can be assigned."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]

    def subtopology_of(self, topic: str) -> str | None:
        """Which subtopology reads `topic`; None if none does."""
        return self._subtopology_of.get(topic)


def source_names(subtopology: AnySubtopology) -> list[str]:
    """The topics that a subtopology reads."""
    repartition = (topic.name for topic in subtopology.repartition_source_topics)
    return [*subtopology.source_topics, *repartition]


def named_topics(subtopologies: Sequence[AnySubtopology]) -> set[str]:
    """Every topic that is named, read or written."""
    return {
        name
        for one in subtopologies
        for name in (
            *source_names(one),
            *one.repartition_sink_topics,
            *(topic.name for topic in one.state_changelog_topics),
        )
    }


def check(epoch: int, subtopologies: Sequence[Subtopology]) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY for what contradicts itself, INVALID_REQUEST for what Kafka
    4.3 does not serve either.
    """
    _require(epoch >= 0, f"The epoch of a topology cannot be {epoch}.")
    _require(
        sum(map(_elements, subtopologies)) <= TOPOLOGY_ELEMENTS_MAX,
        f"The topology has more than {TOPOLOGY_ELEMENTS_MAX} topics, settings and the like.",
    )
    _require(
        sum(map(_characters, subtopologies)) <= TOPOLOGY_CHARACTERS_MAX,
        f"The names and settings of the topology have more than {TOPOLOGY_CHARACTERS_MAX} "
        "characters.",
    )
    ids = [one.subtopology_id for one in subtopologies]
    _require(len(ids) == len(set(ids)), "Two subtopologies of the topology have the same id.")
    for one in subtopologies:
        _check_subtopology(one)


def _elements(subtopology: Subtopology) -> int:
    topics = (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
    return (
        1
        + len(subtopology.source_topics)
        + len(subtopology.repartition_sink_topics)
        + sum(1 + len(topic.topic_configs) for topic in topics)
        + sum(map(_references, subtopology.copartition_groups))
    )


def _characters(subtopology: Subtopology) -> int:
    topics = (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
    configs = (config for topic in topics for config in topic.topic_configs)
    return (
        len(subtopology.subtopology_id)
        + sum(map(len, named_topics([subtopology])))
        + sum(len(config.key) + len(config.value) for config in configs)
    )


def _references(group: CopartitionGroup) -> int:
    return 1 + len(group.source_topics) + len(group.repartition_source_topics)


def _check_subtopology(one: Subtopology) -> None:
    id_ = one.subtopology_id
    if one.source_topic_regex:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Regular expressions for source topics are not supported yet.",
        )
    _require(bool(source_names(one)), f"Subtopology {id_} has no source topics.")
    for topic in one.state_changelog_topics:
        _require(
            topic.partitions == 0,
            f"Changelog topic {topic.name} has as many partitions as there are tasks: the topology "
            f"cannot say {topic.partitions}.",
        )
    for topic in one.repartition_source_topics:
        _check_fixed(topic)
    for group in one.copartition_groups:
        _check_indexes(group.source_topics, len(one.source_topics), id_)
        _check_indexes(group.repartition_source_topics, len(one.repartition_source_topics), id_)


def _check_fixed(topic: TopicInfo) -> None:
    _require(
        topic.partitions >= 0,
        f"Repartition topic {topic.name} cannot have {topic.partitions} partitions.",
    )


def _check_indexes(indexes: Sequence[int], length: int, subtopology_id: str) -> None:
    _require(
        all(0 <= index < length for index in indexes),
        f"A copartition group of subtopology {subtopology_id} names a topic that is not there.",
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def check_names(names: set[str]) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY for names that no topic can have, and for internal topics,
    which are not for applications.
    """
    prohibited = sorted(names & INTERNAL_TOPICS)
    _require(not prohibited, f"A topology cannot use internal topics: {', '.join(prohibited)}.")
    for name in sorted(names):
        try:
            check_topic_name(name)
        except ApiError as e:
            raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, e.message) from None
