"""Tasks of a topology, and how they are grouped for records and answers.

A task is a subtopology and a number: that of the partitions it reads. A member has a task in one of
three types. Sets of `TypedTask` are what assignor, targets and reconciliation reckon with; the
grouped forms of the wire exist only at the edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from penstock.wire.messages.streams_group_heartbeat import TaskIds


class TaskType(IntEnum):
    ACTIVE = 0
    """Processes records."""
    STANDBY = 1
    """Keeps a copy of the state, to take over quickly."""
    WARMUP = 2
    """Builds up the state before the task moves here. No assignor of Kafka 4.3 gives any."""


Task: TypeAlias = tuple[str, int]
"""Subtopology and number."""
TypedTask: TypeAlias = tuple[TaskType, str, int]
NO_TASKS: Final[frozenset[TypedTask]] = frozenset()


class Grouped(NamedTuple):
    """Tasks by type, in the form of the wire."""

    active: list[TaskIds]
    standby: list[TaskIds]
    warmup: list[TaskIds]


def numbers_by_subtopology(tasks: Iterable[TypedTask], kind: TaskType) -> dict[str, list[int]]:
    """The tasks of one type, all sorted: equal sets are written as equal bytes."""
    grouped: dict[str, list[int]] = {}
    for found, subtopology, number in sorted(tasks):
        if found is kind:
            grouped.setdefault(subtopology, []).append(number)
    return grouped


def grouped(tasks: Iterable[TypedTask]) -> Grouped:
    tasks = list(tasks)
    return Grouped(*(_task_ids(numbers_by_subtopology(tasks, kind)) for kind in TaskType))


def _task_ids(numbers: Mapping[str, list[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=id_, partitions=found) for id_, found in numbers.items()]


def flatten(
    active: Iterable[TaskIds], standby: Iterable[TaskIds], warmup: Iterable[TaskIds]
) -> Iterator[TypedTask]:
    """The tasks of the grouped forms of the wire."""
    for kind, of_kind in zip(TaskType, (active, standby, warmup), strict=True):
        for entry in of_kind:
            for number in entry.partitions:
                yield kind, entry.subtopology_id, number
