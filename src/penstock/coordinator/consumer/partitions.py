"""Partitions by topic id, and how they are grouped for records and answers.

A partition of a consumer group is the plain tuple (topic id, number): it hashes quickly, exists in
tens of thousands and survives a topic that is deleted and created again under the same name. Sets
of them are what assignors, targets and reconciliation reckon with; the grouped forms of the wire
exist only at the edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

from penstock.base.ids import Uuid

Partition: TypeAlias = tuple[Uuid, int]


class GroupedPartitions(Protocol):
    """What every `TopicPartitions` structure of the wire has in common."""

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> list[int]: ...


def by_topic(partitions: Iterable[Partition]) -> dict[Uuid, list[int]]:
    """Numbers by topic id, both sorted: equal sets are written as equal bytes."""
    grouped: dict[Uuid, list[int]] = {}
    for topic_id, number in sorted(partitions):
        grouped.setdefault(topic_id, []).append(number)
    return grouped


def flatten(grouped: Iterable[GroupedPartitions]) -> Iterator[Partition]:
    """The partitions of a grouped form of the wire."""
    for entry in grouped:
        topic_id = bytes(entry.topic_id)
        for number in entry.partitions:
            yield topic_id, number


def restrict(held: Iterable[Partition], counts: Mapping[Uuid, int]) -> set[Partition]:
    """The partitions of `held` that exist by `counts` (partitions per topic id)."""
    return {p for p in held if 0 <= p[1] < counts.get(p[0], 0)}
