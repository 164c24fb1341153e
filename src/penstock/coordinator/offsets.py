"""The committed offsets of a shard's groups: how they are stored, read and removed, and when they
expire.

The store is plain memory that records rebuild; every change is made by applying its record
(`take`), the same way as a replay does. Offsets outlive the members and the protocol of their
group. An offset goes when it is deleted, when its topic is deleted, or by
`offsets.retention.minutes` (counted from a time that the group knows, or until the time that an old
client's commit named).

Offsets of open transactions are pending (`transactional_offsets`) until the end of the transaction.
Of two offsets for one partition the one whose record is the later counts, whenever the transaction
of either ended: compaction keeps the last record of a key, and memory must agree with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_LEADER_EPOCH, ZERO_UUID, Uuid
from penstock.coordinator.commits import NO_EXPIRY, TOPIC_IDS_FROM, Commit
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group import Environment, Group
from penstock.coordinator.records import OffsetCommitKey, OffsetCommitValue, encode
from penstock.coordinator.transactional_offsets import OffsetPlace, PendingOffsets
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

NO_OFFSET = -1
DOOMED_AT_ONCE_MAX = 200
"""Offsets of deleted topics that are removed in one event: about two milliseconds."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    topic_id: Uuid
    order: int
    """The place of its record among the shard's records of offsets."""


class GroupOffset(NamedTuple):
    """Where one committed offset belongs."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class OffsetStore:
    """Offsets by group, topic and partition."""

    __slots__ = ("_doomed", "_environment", "_groups", "_taken", "pending")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._taken = 0
        self._doomed: deque[tuple[OffsetPlace, CommittedOffset]] = deque()
        """Of deleted topics: still to be removed."""
        self.pending: PendingOffsets[CommittedOffset] = PendingOffsets()

    def has_any(self, group_id: str) -> bool:
        """Whether the group has offsets, be they pending."""
        return group_id in self._groups or self.pending.has_group(group_id)

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def group_ids(self) -> list[str]:
        """The groups that have committed offsets."""
        return list(self._groups)

    def of_group(self, group_id: str) -> list[GroupOffset]:
        return [
            GroupOffset(group_id, topic, partition, committed)
            for topic, partitions in self._groups.get(group_id, {}).items()
            for partition, committed in partitions.items()
        ]

    def take(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int | None
    ) -> None:
        """Apply a record; `producer_id` is that of the transaction which it is part of."""
        place = OffsetPlace(key.group, key.topic, key.partition)
        if value is None:
            self._remove(place)
            self.pending.remove(place)
            return
        self._taken += 1
        offset = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            self._taken,
        )
        if producer_id is None:
            self._put(place, offset)
        else:
            self.pending.put(producer_id, place, offset)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The offsets of the producer's transaction count from now on, or never."""
        for place, offset in self.pending.end(producer_id):
            committed = self.get(*place)
            if commit and (committed is None or committed.order < offset.order):
                self._put(place, offset)

    def _put(self, place: OffsetPlace, offset: CommittedOffset) -> None:
        group_id, topic, partition = place
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def _remove(self, place: OffsetPlace) -> None:
        group_id, topic, partition = place
        topics = self._groups.get(group_id)
        if topics is None or topic not in topics:
            return
        topics[topic].pop(partition, None)
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    # -- commit --------------------------------------------------------------------------------

    def commit(self, commit: Commit, out: list[CoordinatorRecord]) -> None:
        """Store the offsets; the group has agreed."""
        producer_id = commit.producer.producer_id if commit.producer is not None else None
        for key, value, record in commit.storable:
            self.take(key, value, producer_id)
            out.append(record)

    # -- fetch ---------------------------------------------------------------------------------

    def fetch(
        self, wanted: OffsetFetchRequestGroup, version: int, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        """The offsets that are asked for, or all of the group's committed ones."""
        group_id = wanted.group_id
        if wanted.topics is None:
            return list(self._fetch_all(group_id, version, require_stable))
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
                found = self.get(group_id, name, index)
                if found is not None and not _same_topic(topic.topic_id, found.topic_id):
                    found = None  # committed to a topic of this name that was deleted since
                place = OffsetPlace(group_id, name, index)
                answer.partitions.append(self._answer(place, found, require_stable))
            answers.append(answer)
        return answers

    def _fetch_all(
        self, group_id: str, version: int, require_stable: bool
    ) -> Iterator[OffsetFetchResponseTopics]:
        view = self._environment.topics
        for topic, partitions in self._groups.get(group_id, {}).items():
            topic_id = view.topic_id(topic)
            if version >= TOPIC_IDS_FROM and topic_id is None:
                continue  # the topic is deleted, and this version has no field for its name
            yield OffsetFetchResponseTopics(
                name=topic,
                topic_id=topic_id or ZERO_UUID,
                partitions=[
                    self._answer(OffsetPlace(group_id, topic, index), offset, require_stable)
                    for index, offset in partitions.items()
                ],
            )

    def _answer(
        self, place: OffsetPlace, found: CommittedOffset | None, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and place in self.pending:
            return _none(place.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _none(place.partition) if found is None else _found(place.partition, found)

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
            else:
                self._tombstone(OffsetPlace(group.group_id, topic.name, index), out)
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)

    def delete_all(self, group_id: str, out: list[CoordinatorRecord]) -> None:
        """The group goes: its offsets go with it."""
        for place in self._places_of(group_id) + self.pending.places_of(group_id):
            self._tombstone(place, out)

    def topics_deleted(self, names: frozenset[str], out: list[CoordinatorRecord]) -> None:
        """Remove what is pending; `remove_doomed` removes the others."""
        for place in self.pending.places_in(names):
            self._tombstone(place, out)
        self._doomed += [
            (OffsetPlace(group_id, topic, partition), committed)
            for group_id, topics in self._groups.items()
            for topic, partitions in topics.items()
            if topic in names
            for partition, committed in partitions.items()
        ]

    def remove_doomed(self, out: list[CoordinatorRecord]) -> bool:
        """Remove some of the offsets of deleted topics; whether more are left."""
        for _ in range(min(len(self._doomed), DOOMED_AT_ONCE_MAX)):
            place, committed = self._doomed.popleft()
            # What was stored since is of another topic of this name.
            if self.get(*place) is committed and place not in self.pending:
                self._tombstone(place, out)
        return bool(self._doomed)

    def _places_of(self, group_id: str) -> list[OffsetPlace]:
        return [
            OffsetPlace(group_id, topic, partition)
            for topic, partitions in self._groups.get(group_id, {}).items()
            for partition in partitions
        ]

    def expire(self, group: Group, now_ms: int, out: list[CoordinatorRecord]) -> None:
        """Remove the group's expired offsets."""
        for topic, partitions in list(self._groups.get(group.group_id, {}).items()):
            if group.is_subscribed(topic):
                continue
            for index, committed in list(partitions.items()):
                place = OffsetPlace(group.group_id, topic, index)
                if self._expired(group, committed, now_ms) and place not in self.pending:
                    self._tombstone(place, out)

    def _expired(self, group: Group, committed: CommittedOffset, now_ms: int) -> bool:
        base_ms = group.expiration_base_ms(committed.commit_ms)
        if base_ms is None:
            return False
        if committed.expire_ms != NO_EXPIRY:
            return now_ms >= committed.expire_ms
        return now_ms - base_ms >= self._environment.config.offsets_retention_ms

    def _tombstone(self, place: OffsetPlace, out: list[CoordinatorRecord]) -> None:
        """Take an offset back, with the pending ones of its place; nothing if there is none."""
        if self.get(*place) is None and place not in self.pending:
            return
        group_id, topic, partition = place
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        self.take(key, None, None)
        out.append(encode(key, None))


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
