"""A request to store offsets, whether by OffsetCommit or in a transaction (TxnOffsetCommit).

Both APIs say the same things with other names, and are answered partition by partition. A `Commit`
holds what there is to store and the code that each partition is answered so far. A partition that
does not exist is refused by itself, whatever the group says; the group accepts or refuses all
others together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.coordinator.effects import ProducerIdentity
from penstock.coordinator.group import Committer
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

CommitRequest: TypeAlias = OffsetCommitRequest | TxnOffsetCommitRequest
CommitResponse: TypeAlias = OffsetCommitResponse | TxnOffsetCommitResponse
_RequestTopic: TypeAlias = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
_RequestPartition: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
_Codes: TypeAlias = list[list[ErrorCode]]


class WantedOffset(NamedTuple):
    """An offset to store, of a partition that exists."""

    place: tuple[int, int]
    """Which topic of the request, and which partition of the topic, it is."""
    topic: str
    topic_id: Uuid
    partition: _RequestPartition

    @property
    def metadata(self) -> str:
        return self.partition.committed_metadata or ""


class Commit:
    """One request, sorted out."""

    __slots__ = (
        "_codes",
        "_request",
        "committer",
        "group_id",
        "producer",
        "retention_ms",
        "wanted",
    )

    def __init__(self, request: CommitRequest, version: int, topics: TopicsView) -> None:
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
        self.wanted: list[WantedOffset] = []
        self._codes: _Codes = []
        by_id = self.producer is None and version >= TOPIC_IDS_FROM
        wanted: Sequence[_RequestTopic] = request.topics
        for place, topic in enumerate(wanted):
            self._codes.append(self._sort_out(place, topic, topics, by_id))

    def _sort_out(
        self, place: int, topic: _RequestTopic, topics: TopicsView, by_id: bool
    ) -> list[ErrorCode]:
        """The codes of a topic's partitions so far; those that exist are wanted."""
        name: str | None = topic.name
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_id and isinstance(topic, OffsetCommitRequestTopic):
            name = topics.name_of(topic.topic_id)
            if name is None:
                missing = ErrorCode.UNKNOWN_TOPIC_ID
        count = None if name is None else topics.partition_count(name)
        if name is None or count is None:
            return [missing] * len(topic.partitions)
        topic_id = topics.topic_id(name) or ZERO_UUID
        codes = []
        partitions: Sequence[_RequestPartition] = topic.partitions
        for at, partition in enumerate(partitions):
            exists = 0 <= partition.partition_index < count
            if exists:
                self.wanted.append(WantedOffset((place, at), name, topic_id, partition))
            codes.append(ErrorCode.NONE if exists else missing)
        return codes

    def refuse(self, wanted: WantedOffset, code: ErrorCode) -> None:
        """This offset is not stored."""
        topic, partition = wanted.place
        self._codes[topic][partition] = code

    def refuse_all(self, code: ErrorCode) -> None:
        """None of the offsets is stored."""
        for wanted in self.wanted:
            self.refuse(wanted, code)

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
