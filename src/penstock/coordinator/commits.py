"""A request to store offsets, whether by OffsetCommit or in a transaction (TxnOffsetCommit).

Both APIs say the same things with other names, and are answered partition by partition. A `Commit`
holds what there is to store and what each partition is answered so far. A partition that does not
exist is refused by itself, whatever the group says; the group accepts or refuses all others
together.

What does not depend on the group, records included, is made ready before it is asked (`prepare`),
in steps: a request can have very many offsets. Topics may change in between (`is_current`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.base.steps import Steps
from penstock.coordinator.effects import CoordinatorRecord, ProducerIdentity
from penstock.coordinator.group import Committer
from penstock.coordinator.records import OffsetCommitKey, OffsetCommitValue, encode
from penstock.coordinator.topics import TopicsView
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TOPIC_IDS_FROM = 10
"""The first version of OffsetCommit and of OffsetFetch that names topics by id."""
NO_RETENTION = -1
"""The commit leaves it to the broker how long its offsets are kept."""
NO_EXPIRY = -1
OFFSETS_PER_STEP: Final = 50

CommitRequest: TypeAlias = OffsetCommitRequest | TxnOffsetCommitRequest
CommitResponse: TypeAlias = OffsetCommitResponse | TxnOffsetCommitResponse
_RequestTopic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
_RequestPartition: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
_Codes: TypeAlias = list[list[ErrorCode]]

_UP_TO_THE_GROUP: Final = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
"""The codes of partitions that exist: the group may refuse them yet."""


class _Found(NamedTuple):
    """What the metadata says of a topic of the request."""

    name: str | None
    topic_id: Uuid
    partitions: int


class StorableOffset(NamedTuple):
    """An offset that is stored if the group agrees."""

    key: OffsetCommitKey
    value: OffsetCommitValue
    record: CoordinatorRecord


class Commit:
    """One request, sorted out by `prepare`."""

    __slots__ = (
        "_by_id",
        "_codes",
        "_found",
        "_request",
        "committer",
        "group_id",
        "partitions",
        "producer",
        "retention_ms",
        "storable",
        "wanted",
    )

    def __init__(self, request: CommitRequest, version: int) -> None:
        self._request = request
        self.group_id = request.group_id
        self.producer: ProducerIdentity | None = None
        """The producer whose transaction the offsets are part of; None if they are of none."""
        self.retention_ms = NO_RETENTION
        if isinstance(request, TxnOffsetCommitRequest):
            self.producer = ProducerIdentity(request.producer_id, request.producer_epoch)
            epoch = request.generation_id
        else:
            self.retention_ms = request.retention_time_ms
            epoch = request.generation_id_or_member_epoch
        self.committer = Committer(
            request.member_id,
            request.group_instance_id,
            epoch,
            version,
            transactional=self.producer is not None,
        )
        self._by_id = self.producer is None and version >= TOPIC_IDS_FROM
        self._clear()

    def _clear(self) -> None:
        self._found: list[_Found] = []
        self._codes: _Codes = []
        self.wanted = False
        """Whether a partition of the request exists."""
        self.storable: list[StorableOffset] = []
        self.partitions: list[tuple[Uuid, int]] = []
        """Those of the storable offsets."""

    # -- before the group is asked -------------------------------------------------------------

    def prepare(self, topics: TopicsView, metadata_bytes_max: int, now_ms: int) -> Steps[None]:
        """Find out which offsets can be stored, and make their records."""
        self._clear()
        number = 0
        wanted: Sequence[_RequestTopic] = self._request.topics
        for topic in wanted:
            found = self._find(topic, topics)
            self._found.append(found)
            codes: list[ErrorCode] = []
            self._codes.append(codes)
            partitions: Sequence[_RequestPartition] = topic.partitions
            for partition in partitions:
                number += 1
                if number % OFFSETS_PER_STEP == 0:
                    yield
                codes.append(self._sort_out(partition, found, metadata_bytes_max, now_ms))

    def is_current(self, topics: TopicsView) -> bool:
        """Whether `prepare` was called, and would find the same topics now."""
        wanted: Sequence[_RequestTopic] = self._request.topics
        return self._found == [self._find(topic, topics) for topic in wanted]

    def _find(self, topic: _RequestTopic, topics: TopicsView) -> _Found:
        name: str | None = topic.name
        if self._by_id and isinstance(topic, OffsetCommitRequestTopic):
            name = topics.name_of(topic.topic_id)
        if name is None:
            return _Found(None, ZERO_UUID, 0)
        return _Found(name, topics.topic_id(name) or ZERO_UUID, topics.partition_count(name) or 0)

    def _sort_out(
        self, partition: _RequestPartition, found: _Found, metadata_bytes_max: int, now_ms: int
    ) -> ErrorCode:
        """What the partition is answered so far; an offset that can be stored becomes storable."""
        name, topic_id, count = found
        index, metadata = partition.partition_index, partition.committed_metadata or ""
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= index < count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.wanted = True
        if len(metadata) > metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        key = OffsetCommitKey(group=self.group_id, topic=name, partition=index)
        # The version of the record that has an expiry has no topic id.
        unlimited = self.retention_ms < 0
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=now_ms,
            expire_timestamp=NO_EXPIRY if unlimited else now_ms + self.retention_ms,
            topic_id=topic_id if unlimited else ZERO_UUID,
        )
        self.storable.append(StorableOffset(key, value, encode(key, value)))
        self.partitions.append((topic_id, index))
        return ErrorCode.NONE

    # -- when it has answered ------------------------------------------------------------------

    def refuse_all(self, code: ErrorCode) -> None:
        """None of the offsets is stored."""
        self._codes = [
            [code if said in _UP_TO_THE_GROUP else said for said in of_topic]
            for of_topic in self._codes
        ]

    def response(self) -> CommitResponse:
        return _response(self._request, self._codes)


def refused_commit(request: CommitRequest, code: ErrorCode) -> CommitResponse:
    """The answer that says `code` of every partition."""
    return _response(request, [[code] * len(topic.partitions) for topic in request.topics])


def _response(request: CommitRequest, codes: _Codes) -> CommitResponse:
    if isinstance(request, TxnOffsetCommitRequest):
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name, partitions=_transactional_partitions(topic.partitions, said)
                )
                for topic, said in zip(request.topics, codes, strict=True)
            ]
        )
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=_partitions(topic.partitions, said),
            )
            for topic, said in zip(request.topics, codes, strict=True)
        ]
    )


def _partitions(
    partitions: Sequence[OffsetCommitRequestPartition], codes: list[ErrorCode]
) -> list[OffsetCommitResponsePartition]:
    return [
        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
        for p, code in zip(partitions, codes, strict=True)
    ]


def _transactional_partitions(
    partitions: Sequence[TxnOffsetCommitRequestPartition], codes: list[ErrorCode]
) -> list[TxnOffsetCommitResponsePartition]:
    return [
        TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
        for p, code in zip(partitions, codes, strict=True)
    ]
