"""What administrators do to share groups: move or forget offsets, delete groups.

Offsets lie with the share coordinator, so each of these is two events: the first checks, writes
what is intended and says what to ask the share coordinator, the second writes what it answered.
Who fails in between leaves partitions in their stage: initialising ones are asked for again by the
group's members, those being deleted by the next deletion.

Only groups without members may be changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.effects import Effects
from penstock.coordinator.share_group.group import ShareGroup
from penstock.coordinator.share_group.states import TopicState
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic

UNKNOWN_PARTITION = "This server does not host this topic-partition."
NOTHING_TO_DELETE = "There is no offset information to delete."


class Moved(NamedTuple):
    """Offsets that are to be moved, and the answer if all of them are."""

    state_epoch: int
    starts: Mapping[Partition, int]
    topics: list[AlterShareGroupOffsetsResponseTopic]


class Forgotten(NamedTuple):
    """Partitions that are to be forgotten, by topic, with the names that the client gave."""

    partitions: Collection[Partition]
    names: Mapping[Uuid, str]
    refused: list[DeleteShareGroupOffsetsResponseTopic]


def move(
    group: ShareGroup,
    topics: Collection[AlterShareGroupOffsetsRequestTopic],
    effects: Effects,
    now_ms: int,
) -> Moved:
    """The first half of AlterShareGroupOffsets; the second is `ShareGroup.initialized`."""
    _check_empty(group)
    engine = group.engine
    starts: dict[Partition, int] = {}
    asked: dict[Uuid, TopicState] = {}
    answers = []
    for topic in topics:
        topic_id = engine.environment.topics.topic_id(topic.topic_name)
        count = engine.environment.topics.partition_count(topic.topic_name) or 0
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        answers.append(answer)
        for partition in topic.partitions:
            number = partition.partition_index
            answered = AlterShareGroupOffsetsResponsePartition(partition_index=number)
            answer.partitions.append(answered)
            if topic_id is None or not 0 <= number < count:
                answered.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answered.error_message = UNKNOWN_PARTITION
                continue
            starts[topic_id, number] = partition.start_offset
            before = asked.get(topic_id)
            numbers = before.numbers if before is not None else frozenset()
            asked[topic_id] = TopicState(topic.topic_name, numbers | {number}, now_ms)
        if topic_id is not None:
            answer.topic_id = topic_id
    if asked:
        engine.set_states(group.states.begun(asked), effects)
    return Moved(engine.roster.epoch, starts, answers)


def forget_topics(group: ShareGroup, names: Collection[str], effects: Effects) -> Forgotten:
    """The first half of DeleteShareGroupOffsets; the second is `forgotten`."""
    _check_empty(group)
    topics, states = group.engine.environment.topics, group.states
    partitions: list[Partition] = []
    found: dict[Uuid, str] = {}
    refused = []
    for name in names:
        topic_id = topics.topic_id(name)
        state = states.initialized.get(topic_id) if topic_id is not None else None
        if topic_id is not None and state is not None:
            numbers: Collection[int] = state.numbers
        elif topic_id is not None and topic_id in states.deleting:
            numbers = range(topics.partition_count(name) or 0)
        else:
            why = UNKNOWN_PARTITION if topic_id is None else NOTHING_TO_DELETE
            refused.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=why,
                )
            )
            continue
        found[topic_id] = name
        partitions += ((topic_id, number) for number in sorted(numbers))
    if found:
        initialized = {id_: s for id_, s in states.initialized.items() if id_ not in found}
        group.engine.set_states(
            states._replace(initialized=initialized, deleting={**states.deleting, **found}), effects
        )
    return Forgotten(partitions, found, refused)


def forgotten(group: ShareGroup, topic_ids: Collection[Uuid], effects: Effects) -> None:
    """The share coordinator has forgotten these topics."""
    group.engine.set_states(group.states.forgotten(topic_ids), effects)


def forget_all(group: ShareGroup, effects: Effects) -> list[Partition]:
    """What DeleteGroups begins with: the partitions that the share coordinator has to forget before
    the group is deleted.
    """
    _check_empty(group)
    topics, states = group.engine.environment.topics, group.states
    partitions = {
        (topic_id, number)
        for stage in (states.initializing, states.initialized)
        for topic_id, state in stage.items()
        for number in state.numbers
    }
    for topic_id in states.deleting:
        count = topics.partition_count(topics.name_of(topic_id) or "") or 0
        partitions |= {(topic_id, number) for number in range(count)}
    if partitions:
        after = states.to_delete({*states.initializing, *states.initialized})
        group.engine.set_states(after, effects)
    return sorted(partitions)


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
