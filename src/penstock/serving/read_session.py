"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what
changes.

A session remembers the partitions that a client fetches and what it was last sent of each, so that
a response carries only partitions with something new. It also keeps which of them to check
(`dirty`): those that changed since the last check, that the client named again, that had more data
than there was room for, or that returned an error. So a request costs by what has changed, not by
how many partitions its session holds. A session stays registered at its
partitions from one request to the next; a request without a session has one of its own that ends
with it.

Sessions live in a cache of `max.incremental.fetch.session.cache.slots`; a full cache gives the
slot of the session that has been idle longest, provided it has been so for
`EVICTION_IDLE_MS_MIN`, and otherwise grants none (the client then continues with full requests).
A follower always gets one: the consumer that has been idle longest is evicted.
Clock and random numbers come from the caller.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicKey
from penstock.base.results import PartitionData
from penstock.partitions.partition import Partition
from penstock.partitions.waiting import COMMITTED

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH = -1
EVICTION_IDLE_MS_MIN = 120_000
EPOCH_MAX: Final = 2**31 - 1
PARTITIONS_AT_ONCE_MAX = 32
"""The log of a partition may have to be opened, which takes half a millisecond."""
CONSUMER = -1
"""The replica id of a client that is not a replica."""

PartitionKey: TypeAlias = tuple[TopicKey, int]


class Parked(Protocol):
    """A read that waits for changes of the partitions of its session."""

    def moved(self, came: int, why: int) -> None:
        """One of them has grown by `came` bytes; `why` as in `ReadWaiter.moved`."""

    def end_of_wait(self) -> None:
        """End the read now, with what there is."""


class FetchPartition:
    """What a client wants of one partition, and what it was last sent of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "seen_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "topic",
        "touched",
    )

    def __init__(
        self,
        topic: TopicKey,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.session: FetchSession | None = None
        self.partition: Partition | None = None
        """Where it is registered for changes."""
        self.seen_bytes = 0
        """`log.bytes_in` at the last check or change."""
        self.touched = False
        """Whether something has changed since the last check."""

    def take_request(self, other: FetchPartition) -> None:
        """A later request of the session changes what is wanted."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset

    @property
    def read_committed(self) -> bool:
        return self.session is not None and self.session.read_committed

    def attach(self, partition: Partition) -> None:
        """Register for changes of `partition`."""
        if self.partition is not partition:
            self.detach()
            self.partition = partition
            session = self.session
            follower = session is not None and session.replica_id != CONSUMER
            partition.readers.add(self, follower=follower)

    def detach(self) -> None:
        if self.partition is not None:
            self.partition.readers.remove(self)
            self.partition = None

    def left(self) -> None:
        self.partition = None

    def moved(self, bytes_in: int, why: int) -> None:
        """The partition has changed: the next request checks it, and a parked read is woken.

        If none is parked, the registration ends, so that a client that is gone costs its
        partitions nothing. The next request registers again.
        """
        session = self.session
        assert session is not None
        self.touched = True
        session.dirty[self] = None
        if session.parked is None:
            self.detach()
        elif why != COMMITTED:
            came, self.seen_bytes = bytes_in - self.seen_bytes, bytes_in
            session.parked.moved(came, why)

    def has_news(self, data: PartitionData) -> bool:
        """Whether `data` is new to the client; remembers it as sent."""
        news = (
            bool(data.records)
            or data.error_code != 0
            or data.preferred_read_replica >= 0
            or data.diverging_end_offset >= 0
            or data.high_watermark != self.sent_high_watermark
            or data.log_start_offset != self.sent_log_start_offset
        )
        if data.error_code:
            # The error is repeated until it is gone, and what follows it is news again.
            self.sent_high_watermark = -1
        else:
            self.sent_high_watermark = data.high_watermark
        self.sent_log_start_offset = data.log_start_offset
        return news


class FetchSession:
    """The partitions of one client; `id` is `NO_SESSION_ID` for a request without a session."""

    __slots__ = (
        "ahead",
        "by_topic_id",
        "dirty",
        "epoch",
        "id",
        "last_used_ms",
        "parked",
        "partitions",
        "replica_id",
        "visibility",
    )

    def __init__(
        self, session_id: int, *, by_topic_id: bool, replica_id: int = CONSUMER, now_ms: int = 0
    ) -> None:
        self.id = session_id
        self.by_topic_id = by_topic_id
        self.replica_id = replica_id
        self.last_used_ms = now_ms
        self.epoch = INITIAL_EPOCH + 1
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.dirty: dict[FetchPartition, None] = {}
        """The partitions to check, in the order to serve them."""
        self.parked: Parked | None = None
        """The request of the session that waits for changes."""
        self.visibility: tuple[bool, str] = (False, "")
        """What decides how much of a partition the client sees: whether it reads only what is
        committed, and its rack.
        """
        self.ahead: Any = None
        """What was read for the next request of a follower that catches up."""

    def update(self, wanted: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        for partition in wanted:
            key = (partition.topic, partition.index)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = known = partition
                partition.session = self
            else:
                known.take_request(partition)
            self.dirty[known] = None
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                gone.detach()
                self.dirty.pop(gone, None)

    @property
    def read_committed(self) -> bool:
        return self.visibility[0]

    def set_visibility(self, visibility: tuple[bool, str]) -> None:
        """Check all partitions again if the visibility has changed."""
        if visibility != self.visibility:
            self.visibility = visibility
            self.dirty = dict.fromkeys(self.partitions.values())

    def served(self, partition: FetchPartition) -> None:
        """A partition that gave records goes to the end, so that all get their turn."""
        if self.dirty.pop(partition, self) is not self:
            self.dirty[partition] = None

    def close(self) -> None:
        """End all registrations and forget everything."""
        for partition in self.partitions.values():
            partition.detach()
        self.partitions.clear()
        self.dirty.clear()
        self.ahead = None


class ReadContext(NamedTuple):
    """A request's session, and whether its response is incremental."""

    session: FetchSession
    incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.id

    def to_check(self) -> list[FetchPartition]:
        """A full request is answered in full, an incremental one with what is new."""
        session = self.session
        return list(session.dirty if self.incremental else session.partitions.values())

    @property
    def is_wide(self) -> bool:
        """Whether there is so much to check that others are served in between."""
        session = self.session
        count = len(session.dirty) if self.incremental else len(session.partitions)
        return count > PARTITIONS_AT_ONCE_MAX


class FetchSessionCache:
    def __init__(self, slots: int, random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._random_below = random_below
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._followers: dict[int, FetchSession] = {}
        """The session of each follower: it has one at a time."""
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
        replica_id: int = CONSUMER,
    ) -> ReadContext:
        """What the request's session fields ask for; ApiError if they do not fit a session here."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(self._sessions.get(session_id))
            session = FetchSession(
                NO_SESSION_ID, by_topic_id=by_topic_id, replica_id=replica_id, now_ms=now_ms
            )
            session.update(wanted, ())
            if epoch == INITIAL_EPOCH and wanted:
                self._keep(session)
            return ReadContext(session, incremental=False)
        known = self._sessions.get(session_id)
        if known is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if known.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if known.by_topic_id != by_topic_id:
            # The client was upgraded or downgraded within its session; it opens a new one.
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        known.update(wanted, forgotten)
        known.epoch = 1 if known.epoch == EPOCH_MAX else known.epoch + 1
        known.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        if not known.partitions:
            self._close(known)
        return ReadContext(known, incremental=True)

    def forget(self, session: FetchSession, forgotten: list[PartitionKey]) -> None:
        """Take partitions out of a session, after its `context`; without any it ends."""
        session.update((), forgotten)
        if session.id and not session.partitions:
            self._close(session)

    def end(self, session_id: int) -> None:
        """The client will not go on with this session."""
        self._close(self._sessions.get(session_id))

    def _keep(self, session: FetchSession) -> None:
        self._close(self._followers.get(session.replica_id))
        if len(self._sessions) >= self._slots and not self._evict(session):
            return
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = 1 + self._random_below(2**31 - 1)
        session.id = session_id
        self._sessions[session_id] = session
        if session.replica_id != CONSUMER:
            self._followers[session.replica_id] = session

    def _evict(self, newcomer: FetchSession) -> bool:
        """Make room for `newcomer` by evicting another session, if that may be."""
        consumers = (s for s in self._sessions.values() if s.replica_id == CONSUMER)
        oldest = next(consumers, None)
        if oldest is None:
            return False
        idle_ms = newcomer.last_used_ms - oldest.last_used_ms
        if newcomer.replica_id == CONSUMER and idle_ms < EVICTION_IDLE_MS_MIN:
            return False
        self._close(oldest)
        self.evicted_total += 1
        return True

    def _close(self, session: FetchSession | None) -> None:
        if session is not None:
            del self._sessions[session.id]
            self._followers.pop(session.replica_id, None)
            session.id = NO_SESSION_ID
            session.close()
