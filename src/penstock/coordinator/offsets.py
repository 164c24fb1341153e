"""The committed offsets of a shard's groups: who may store, read and remove them, and when they go.

The store is plain memory that records rebuild; every change is made by taking up the record that
says it (`take`), the same way as a replay does. Offsets outlive the members and the protocol of
their group. An offset goes when it is deleted, when its topic is deleted, or by
`offsets.retention.minutes` (counted from a time that the group knows, or until the time that an old
client's commit named).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_LEADER_EPOCH, ZERO_UUID, Uuid
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group import Environment, Group
from penstock.coordinator.records import OffsetCommitKey, OffsetCommitValue, encode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPIC_IDS_FROM = 10
"""The first version of OffsetCommit and of OffsetFetch that names topics by id."""
NO_OFFSET = -1
NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    topic_id: Uuid


class GroupOffset(NamedTuple):
    """Where one committed offset belongs."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class OffsetStore:
    """Offsets by group, topic and partition."""

    __slots__ = ("_environment", "_groups")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def has_any(self, group_id: str) -> bool:
        return group_id in self._groups

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def group_ids(self) -> list[str]:
        """The groups that have offsets."""
        return list(self._groups)

    def of_group(self, group_id: str) -> list[GroupOffset]:
        return [
            GroupOffset(group_id, topic, partition, committed)
            for topic, partitions in self._groups.get(group_id, {}).items()
            for partition, committed in partitions.items()
        ]

    def take(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Take up a record."""
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            return
        partitions = self._groups.setdefault(key.group, {}).setdefault(key.topic, {})
        partitions[key.partition] = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id)
        if topics is None or topic not in topics:
            return
        topics[topic].pop(partition, None)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    def _write(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, out: list[CoordinatorRecord]
    ) -> None:
        self.take(key, value)
        out.append(encode(key, value))

    # -- commit --------------------------------------------------------------------------------

    def unknown_topics(
        self, request: OffsetCommitRequest, version: int
    ) -> dict[int, OffsetCommitResponseTopic]:
        """The answers, by place in the request, for topics that a commit cannot name."""
        view = self._environment.topics
        answers = {}
        for place, topic in enumerate(request.topics):
            code = ErrorCode.NONE
            if version >= TOPIC_IDS_FROM:
                name = view.name_of(topic.topic_id)
                if name is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    topic.name = name
            elif view.partition_count(topic.name) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code:
                answers[place] = commit_answer(topic, code)
        return answers

    def commit(
        self,
        request: OffsetCommitRequest,
        topic: OffsetCommitRequestTopic,
        now_ms: int,
        out: list[CoordinatorRecord],
    ) -> OffsetCommitResponseTopic:
        """Store a topic's offsets, each partition by itself; the topic exists."""
        view = self._environment.topics
        count = view.partition_count(topic.name) or 0
        topic_id = view.topic_id(topic.name) or ZERO_UUID
        answers = []
        for partition in topic.partitions:
            code = self._check(partition, count)
            if code is ErrorCode.NONE:
                key = OffsetCommitKey(
                    group=request.group_id, topic=topic.name, partition=partition.partition_index
                )
                self._write(key, _value(request, partition, topic_id, now_ms), out)
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        )

    def _check(self, partition: OffsetCommitRequestPartition, count: int) -> ErrorCode:
        if not 0 <= partition.partition_index < count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._environment.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    # -- fetch ---------------------------------------------------------------------------------

    def fetch(
        self, wanted: OffsetFetchRequestGroup, version: int
    ) -> list[OffsetFetchResponseTopics]:
        """The offsets that are asked for, or all of the group's."""
        if wanted.topics is None:
            return list(self._fetch_all(wanted.group_id, version))
        view = self._environment.topics
        answers = []
        for topic in wanted.topics:
            name: str | None = topic.name
            if version >= TOPIC_IDS_FROM:
                name = view.name_of(topic.topic_id)
            answer = OffsetFetchResponseTopics(name=name or "", topic_id=topic.topic_id)
            for index in topic.partition_indexes:
                if name is None:
                    answer.partitions.append(_none(index, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                found = self.get(wanted.group_id, name, index)
                if found is not None and not _same_topic(topic.topic_id, found.topic_id):
                    found = None  # committed to a topic of this name that was deleted since
                answer.partitions.append(_none(index) if found is None else _found(index, found))
            answers.append(answer)
        return answers

    def _fetch_all(self, group_id: str, version: int) -> Iterator[OffsetFetchResponseTopics]:
        view = self._environment.topics
        for topic, partitions in self._groups.get(group_id, {}).items():
            topic_id = view.topic_id(topic)
            if version >= TOPIC_IDS_FROM and topic_id is None:
                continue  # the topic has gone, and its name cannot be said in this version
            yield OffsetFetchResponseTopics(
                name=topic,
                topic_id=topic_id or ZERO_UUID,
                partitions=[_found(index, offset) for index, offset in partitions.items()],
            )

    # -- removal -------------------------------------------------------------------------------

    def delete(
        self,
        group: Group,
        topic: OffsetDeleteRequestTopic,
        out: list[CoordinatorRecord],
    ) -> OffsetDeleteResponseTopic:
        """Remove a topic's offsets, unless a member consumes it."""
        count = self._environment.topics.partition_count(topic.name) or 0
        subscribed = group.is_subscribed(topic.name)
        answers = []
        for partition in topic.partitions:
            index, code = partition.partition_index, ErrorCode.NONE
            if not 0 <= index < count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif self.get(group.group_id, topic.name, index) is not None:
                self._tombstone(group.group_id, topic.name, index, out)
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)

    def delete_all(self, group_id: str, out: list[CoordinatorRecord]) -> None:
        """The group goes: its offsets go with it."""
        for topic, partitions in list(self._groups.get(group_id, {}).items()):
            for index in list(partitions):
                self._tombstone(group_id, topic, index, out)

    def topics_deleted(self, names: frozenset[str], out: list[CoordinatorRecord]) -> None:
        for group_id, topics in list(self._groups.items()):
            for name in names & topics.keys():
                for index in list(topics[name]):
                    self._tombstone(group_id, name, index, out)

    def expire(self, group: Group, now_ms: int, out: list[CoordinatorRecord]) -> None:
        """Remove the group's offsets that nobody has a right to any more."""
        for topic, partitions in list(self._groups.get(group.group_id, {}).items()):
            if group.is_subscribed(topic):
                continue
            for index, committed in list(partitions.items()):
                if self._expired(group, committed, now_ms):
                    self._tombstone(group.group_id, topic, index, out)

    def _expired(self, group: Group, committed: CommittedOffset, now_ms: int) -> bool:
        base_ms = group.expiration_base_ms(committed.commit_ms)
        if base_ms is None:
            return False
        if committed.expire_ms != NO_EXPIRY:
            return now_ms >= committed.expire_ms
        return now_ms - base_ms >= self._environment.config.offsets_retention_ms

    def _tombstone(
        self, group_id: str, topic: str, partition: int, out: list[CoordinatorRecord]
    ) -> None:
        self._write(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None, out)


def commit_answer(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    """The answer that says `code` of every partition of `topic`."""
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def _value(
    request: OffsetCommitRequest,
    partition: OffsetCommitRequestPartition,
    topic_id: Uuid,
    now_ms: int,
) -> OffsetCommitValue:
    retention_ms = request.retention_time_ms
    if retention_ms >= 0:
        topic_id = ZERO_UUID  # the version of the record that has an expiry has no topic id
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=NO_EXPIRY if retention_ms < 0 else now_ms + retention_ms,
        topic_id=topic_id,
    )


def _same_topic(wanted: Uuid, committed: Uuid) -> bool:
    """Whether the ids can be one topic's; old clients and old records do not say theirs."""
    return ZERO_UUID in (wanted, committed) or wanted == committed


def _found(index: int, committed: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _none(index: int, code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=code,
    )
