"""What a read will return for each of its partitions, before any record is read.

Planning costs an index search per partition to check, and changes nothing. Owned by the event
loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.base.errors import (
    ApiError,
    CorruptRecord,
    ErrorCode,
    InvariantBroken,
    StorageError,
)
from penstock.base.results import AbortedTransaction
from penstock.log.slice import LogSlice
from penstock.partitions.partition import Partition
from penstock.partitions.read_replica import ReplicaSelector
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.replication_quota import ReplicationQuota
from penstock.replica.divergence import divergence
from penstock.serving.read_session import CONSUMER, FetchPartition

READ_COMMITTED: Final = 1
NO_REPLICA = -1
NOTHING_REFUSED: Final[Mapping[FetchPartition, ApiError]] = {}
FOLLOWER_ANSWER_BYTES_MAX: Final = 1024 * 1024
"""A follower that catches up gets no more at a time, so that it does not delay others."""


class ReadParams:
    """The parameters of a request that hold for all of its partitions. Immutable."""

    __slots__ = (
        "broker_epoch",
        "from_followers",
        "hints",
        "is_follower",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack",
        "read_committed",
        "replica_id",
        "visibility",
    )

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
        replica_id: int,
        broker_epoch: int,
        rack: str,
        from_followers: bool,
        hints: bool,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.rack = rack
        self.from_followers = from_followers
        """Whether the client may be served by a follower (v11+)."""
        self.hints = hints
        """Whether errors that mean a new leader are to name it."""
        self.is_follower = replica_id >= 0
        self.visibility = (read_committed, rack)
        """What decides how much of a partition is visible to the reader."""

    def within(self, bytes_max: int) -> ReadParams:
        """The same, for at most so many bytes."""
        if self.max_bytes <= bytes_max:
            return self
        return ReadParams(
            self.max_wait_ms,
            min(self.min_bytes, bytes_max),
            bytes_max,
            self.read_committed,
            self.replica_id,
            self.broker_epoch,
            self.rack,
            self.from_followers,
            self.hints,
        )


class PartitionRead:
    """What a read will return for one partition: its offsets, and a slice that is not read yet."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "more",
        "partition",
        "preferred",
        "slice",
        "wanted",
    )

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.partition: Partition | None = None
        self.slice: LogSlice | None = None
        self.aborted: list[AbortedTransaction] | None = None
        self.error: ApiError | None = None
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.diverging: tuple[int, int] | None = None
        """The epoch at which the reader's log diverges from this one, and where that ends here."""
        self.preferred = NO_REPLICA
        self.more = False
        """Whether there is more than this response has room for."""

    def note(self, partition: Partition) -> None:
        """Keep the offsets for the response, as they are when its records are chosen."""
        self.high_watermark = partition.high_watermark
        self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = partition.log.log_start_offset

    @property
    def urgent(self) -> bool:
        """Whether the reader must be answered immediately."""
        return self.error is not None or self.diverging is not None or self.preferred != NO_REPLICA

    def prompts(self) -> bool:
        """Whether the reader is a follower that must learn of a commit immediately."""
        session, partition = self.wanted.session, self.partition
        return (
            partition is not None
            and partition.prompts_followers
            and session is not None
            and session.replica_id != CONSUMER
            and self.wanted.sent_high_watermark != self.high_watermark
        )

    @property
    def quiet(self) -> bool:
        """Whether there is nothing new for the reader."""
        wanted = self.wanted
        return (
            self.slice is None
            and not self.more
            and not self.urgent
            and wanted.sent_high_watermark == self.high_watermark
            and wanted.sent_log_start_offset == self.log_start_offset
        )


class ReadPlan(NamedTuple):
    parts: list[PartitionRead]
    found: int
    """Bytes of records."""
    urgent: bool
    room_used: int
    """How much of the response's byte limit they take."""


NOTHING_PLANNED: Final = ReadPlan([], 0, False, 0)


class ReadPlanner:
    def __init__(
        self,
        replicas: ReplicaManager,
        max_bytes: int,
        selector: ReplicaSelector,
        quota: ReplicationQuota,
    ) -> None:
        """`max_bytes` is the limit of a response, `quota` that of throttled followers."""
        self._replicas = replicas
        self._max_bytes = max_bytes
        self._selector = selector
        self._quota = quota
        self.corrupt_reads = 0

    def plan(
        self,
        to_check: list[FetchPartition],
        params: ReadParams,
        refused: Mapping[FetchPartition, ApiError] = NOTHING_REFUSED,
        before: ReadPlan = NOTHING_PLANNED,
    ) -> ReadPlan:
        """Check partitions of the request, except those `refused` before. The sums go on from
        those of `before`, which planned the ones that precede them.
        """
        limit = min(params.max_bytes, self._max_bytes)
        if params.is_follower:
            limit = min(limit, FOLLOWER_ANSWER_BYTES_MAX)
        _, found, urgent, used = before
        room = limit - used
        parts = []
        for wanted in to_check:
            part = PartitionRead(wanted)
            try:
                if wanted in refused:
                    raise refused[wanted]
                self._plan_partition(part, params, room, min_one=not found)
            except ApiError as e:
                part.error = e
            except CorruptRecord as damage:
                part.error = self.corrupt(damage)
            except (StorageError, InvariantBroken) as failure:
                if part.partition is not None and isinstance(failure, InvariantBroken):
                    part.partition.stop(str(failure))
                part.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            if part.slice is not None:
                found += part.slice.size
                room -= part.slice.room
            elif part.urgent or part.prompts():
                urgent = True
            parts.append(part)
        return ReadPlan(parts, found, urgent, limit - room)

    def _plan_partition(
        self, part: PartitionRead, params: ReadParams, room: int, *, min_one: bool
    ) -> None:
        wanted = part.wanted
        find = self._replicas.replica_of if params.from_followers else self._replicas.leader_of
        partition = part.partition = find(wanted.topic, wanted.index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        part.diverging = divergence_of(partition, wanted)
        if params.is_follower:
            partition.check_replica(params.replica_id)
            end = partition.log.log_end_offset
        else:
            end = (
                partition.last_stable_offset if params.read_committed else partition.high_watermark
            )
            if params.rack:
                part.preferred = self._selector.select(partition, params.rack, wanted.fetch_offset)
        part.note(partition)
        offset = wanted.fetch_offset
        if part.urgent:
            return
        if end <= offset <= partition.log.log_end_offset:
            if params.read_committed:
                part.aborted = []
            return
        self._find_records(part, partition, params, min(wanted.max_bytes, room), end, min_one)

    def _find_records(
        self,
        part: PartitionRead,
        partition: Partition,
        params: ReadParams,
        limit: int,
        end: int,
        min_one: bool,
    ) -> None:
        log, offset = partition.log, part.wanted.fetch_offset
        if params.is_follower and self._throttles(partition, params.replica_id):
            part.more = True
        elif limit > 0 or min_one:
            part.slice = log.read(offset, limit, up_to_offset=end, min_one=min_one)
        else:
            part.more = True
        if params.read_committed:
            read_to = offset
            if part.slice is not None:
                read_to = min(end, log.segments.offset_above(part.slice, log.log_end_offset))
            part.aborted = [
                AbortedTransaction(txn.producer_id, txn.first_offset)
                for txn in log.aborted_transactions(offset, read_to)
            ]

    def _throttles(self, partition: Partition, replica_id: int) -> bool:
        return not partition.in_sync(replica_id) and self._quota.throttles(partition)

    def corrupt(self, error: CorruptRecord) -> ApiError:
        """Count damaged data; the error for the client."""
        self.corrupt_reads += 1  # the log has logged what and where
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


def divergence_of(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    """Where the reader's log diverges from this one; None if it does not, or is not known."""
    if wanted.last_fetched_epoch < 0:
        return None
    return divergence(
        partition.log, partition.leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch
    )
