"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, then only what
changes.

A session remembers the partitions a client fetches, in the order to serve them, and what the
client was last told about each, so that an answer carries only partitions with something new.
Sessions live in a cache of `max.incremental.fetch.session.cache.slots`; a full cache gives the
slot of the session that has been idle longest, provided it has been so for
`EVICTION_IDLE_MS_MIN`, and otherwise grants none (the client then goes on with full requests).
Pure state: the caller brings time and chance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.base.errors import ApiError, ErrorCode
from penstock.wire.fetch_codec import PartitionData
from penstock.wire.produce_codec import TopicKey

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_IDLE_MS_MIN = 120_000
EPOCH_MAX = 2**31 - 1

PartitionKey: TypeAlias = tuple[TopicKey, int]


class FetchPartition:
    """What a client wants of one partition, and what it was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "max_bytes",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
    )

    def __init__(
        self,
        topic: TopicKey,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def take_request(self, other: FetchPartition) -> None:
        """A later request of the session changes what is wanted."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch

    def has_news(self, data: PartitionData) -> bool:
        """Whether `data` tells the client something; remembers it as told."""
        news = (
            bool(data.records)
            or data.error_code != 0
            or data.preferred_read_replica >= 0
            or data.diverging_end_offset >= 0
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_log_start_offset
        )
        if data.error_code:
            # The error is repeated until it is gone, and what follows it is news again.
            self.told_high_watermark = -1
        else:
            self.told_high_watermark = data.high_watermark
        self.told_log_start_offset = data.log_start_offset
        return news


@dataclass(slots=True)
class FetchSession:
    id: int
    by_topic_id: bool
    last_used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    partitions: OrderedDict[PartitionKey, FetchPartition] = field(default_factory=OrderedDict)

    def update(self, wanted: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        for partition in wanted:
            key = (partition.topic, partition.index)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = partition
            else:
                known.take_request(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def served(self, key: PartitionKey) -> None:
        """Partitions that gave records go to the end, so that all get their turn."""
        if key in self.partitions:
            self.partitions.move_to_end(key)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What one Fetch request amounts to: the partitions to read, and how to answer."""

    session: FetchSession | None
    partitions: list[FetchPartition]
    incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION_ID


class FetchSessionCache:
    def __init__(self, slots: int, random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._random_below = random_below
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evicted_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(
        self,
        session_id: int,
        epoch: int,
        wanted: list[FetchPartition],
        forgotten: list[PartitionKey],
        *,
        by_topic_id: bool,
        now_ms: int,
    ) -> FetchContext:
        """What the request's session fields ask for; ApiError if they do not fit a session here."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = None
            if epoch == INITIAL_EPOCH and wanted:
                session = self._open(wanted, by_topic_id, now_ms)
            return FetchContext(session, wanted, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != by_topic_id:
            # The client was upgraded or downgraded within its session; it opens a new one.
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(wanted, forgotten)
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(None, [], incremental=True)
        return FetchContext(session, list(session.partitions.values()), incremental=True)

    def _open(
        self, wanted: list[FetchPartition], by_topic_id: bool, now_ms: int
    ) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(now_ms):
            return None
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = 1 + self._random_below(2**31 - 1)
        session = FetchSession(session_id, by_topic_id, now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session

    def _evict(self, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < EVICTION_IDLE_MS_MIN:
            return False
        del self._sessions[oldest.id]
        self.evicted_total += 1
        return True
