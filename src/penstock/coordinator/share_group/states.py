"""Which partitions of a share group have a state at the share coordinator.

    stage         means                                         left by
    ------------  --------------------------------------------  -----------------------------------
    initializing  the share coordinator was asked to begin      its answer; asked again after a time
    initialized   it has begun: members may get the partition   an administrator, the topic's end
    deleting      it was asked to forget the topic              its answer; asked again by the next
                                                                deletion

The three are one record of the group. Immutable and compared by value: a record is written exactly
when one of them changes. A record's own time stands for the times, which it does not carry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.partitions import Partition


class TopicState(NamedTuple):
    """Partitions of one topic, by the name that it had when they came to their stage."""

    name: str
    numbers: frozenset[int]
    since_ms: int = 0


class StatePartitions(NamedTuple):
    initializing: Mapping[Uuid, TopicState] = {}
    initialized: Mapping[Uuid, TopicState] = {}
    deleting: Mapping[Uuid, str] = {}
    """Names by id."""

    def fresh(self, topic_id: Uuid, asked_after_ms: int) -> frozenset[int]:
        """What needs no request: initialised, or asked for after that time."""
        done = self.initialized.get(topic_id)
        asked = self.initializing.get(topic_id)
        numbers = done.numbers if done is not None else frozenset()
        if asked is not None and asked.since_ms > asked_after_ms:
            numbers |= asked.numbers
        return numbers

    def begun(self, asked: Mapping[Uuid, TopicState]) -> StatePartitions:
        """The share coordinator is asked for these, also where they were to be forgotten."""
        initializing = _joined(self.initializing, asked)
        deleting = {id_: name for id_, name in self.deleting.items() if id_ not in initializing}
        return self._replace(initializing=initializing, deleting=deleting)

    def done(self, answered: Mapping[Uuid, TopicState]) -> StatePartitions:
        """The share coordinator has begun these."""
        return self._replace(
            initializing=_less(self.initializing, _partitions(answered)),
            initialized=_joined(self.initialized, answered),
        )

    def not_done(self, partitions: Iterable[Partition]) -> StatePartitions:
        """The share coordinator has refused these: they are asked for again."""
        return self._replace(initializing=_less(self.initializing, partitions))

    def to_delete(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """The share coordinator is asked to forget these topics."""
        names = {
            id_: state.name
            for stage in (self.initializing, self.initialized)
            for id_, state in stage.items()
            if id_ in topic_ids
        }
        return StatePartitions(
            _without(self.initializing, topic_ids),
            _without(self.initialized, topic_ids),
            {**self.deleting, **names},
        )

    def forget(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """These topics are gone."""
        return StatePartitions(
            _without(self.initializing, topic_ids),
            _without(self.initialized, topic_ids),
            {id_: name for id_, name in self.deleting.items() if id_ not in topic_ids},
        )

    def forgotten(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """The share coordinator has forgotten these topics."""
        deleting = {id_: name for id_, name in self.deleting.items() if id_ not in topic_ids}
        return self._replace(deleting=deleting)

    def gone(self, name_of: Callable[[Uuid], str | None]) -> set[Uuid]:
        """The topics that do not exist any more."""
        ids = {*self.initializing, *self.initialized, *self.deleting}
        return {id_ for id_ in ids if name_of(id_) is None}


def _joined(
    some: Mapping[Uuid, TopicState], more: Mapping[Uuid, TopicState]
) -> dict[Uuid, TopicState]:
    """Both; name and time of `more` count."""
    joined = dict(some)
    for topic_id, state in more.items():
        before = joined.get(topic_id)
        numbers = state.numbers if before is None else before.numbers | state.numbers
        joined[topic_id] = state._replace(numbers=numbers)
    return joined


def _less(
    some: Mapping[Uuid, TopicState], partitions: Iterable[Partition]
) -> dict[Uuid, TopicState]:
    left = dict(some)
    for topic_id, number in partitions:
        state = left.get(topic_id)
        if state is not None:
            numbers = state.numbers - {number}
            if numbers:
                left[topic_id] = state._replace(numbers=numbers)
            else:
                del left[topic_id]
    return left


def _without(
    some: Mapping[Uuid, TopicState], topic_ids: Collection[Uuid]
) -> dict[Uuid, TopicState]:
    return {id_: state for id_, state in some.items() if id_ not in topic_ids}


def _partitions(states: Mapping[Uuid, TopicState]) -> Iterable[Partition]:
    for topic_id, state in states.items():
        for number in state.numbers:
            yield topic_id, number
