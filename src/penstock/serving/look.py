"""What a read finds at its partitions, before any record is read.

A look costs an index search per partition that is worth one, and changes nothing. Owned by the
event loop's thread.
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
from penstock.serving.read_session import CONSUMER, FetchPartition, ReadContext

READ_COMMITTED = 1
NO_REPLICA = -1
NOTHING_REFUSED: Final[Mapping[FetchPartition, ApiError]] = {}
FOLLOWER_ANSWER_BYTES_MAX = 1024 * 1024
"""A follower that catches up gets no more at a time, so that others need not wait for it long."""


class ReadParams:
    """What a request says once for all of its partitions. Not changed once it is made."""

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
        "sight",
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
        """Whether the client may be served by a follower, which it understands from v11 on."""
        self.hints = hints
        """Whether the client wants to be told of new leaders with the errors that mean them."""
        self.is_follower = replica_id >= 0
        self.sight = (read_committed, rack)
        """What decides how far a reader sees, apart from its partitions."""


class Look:
    """What there is to say of one partition before its records are read."""

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
        """The epoch at which the reader's log parts from this one, and where that ends here."""
        self.preferred = NO_REPLICA
        self.more = False
        """Whether there is something that this answer does not tell."""

    def note(self, partition: Partition) -> None:
        """Keep what the answer says of the partition, as it is when its records are chosen."""
        self.high_watermark = partition.high_watermark
        self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = partition.log.log_start_offset

    @property
    def urgent(self) -> bool:
        """Whether the reader has to hear of it at once."""
        return self.error is not None or self.diverging is not None or self.preferred != NO_REPLICA

    def prompts(self) -> bool:
        """Whether the reader is a follower that must not wait to hear of a commit."""
        session, partition = self.wanted.session, self.partition
        return (
            partition is not None
            and partition.prompts_followers
            and session is not None
            and session.replica_id != CONSUMER
            and self.wanted.told_high_watermark != self.high_watermark
        )

    @property
    def quiet(self) -> bool:
        """Whether there is nothing that the reader does not know."""
        wanted = self.wanted
        return (
            self.slice is None
            and not self.more
            and not self.urgent
            and wanted.told_high_watermark == self.high_watermark
            and wanted.told_log_start_offset == self.log_start_offset
        )


class Looks(NamedTuple):
    looks: list[Look]
    found: int
    """Bytes of records."""
    urgent: bool


class Looker:
    def __init__(
        self,
        replicas: ReplicaManager,
        max_bytes: int,
        selector: ReplicaSelector,
        quota: ReplicationQuota,
    ) -> None:
        """`max_bytes` is the most that one answer carries, `quota` that of throttled followers."""
        self._replicas = replicas
        self._max_bytes = max_bytes
        self._selector = selector
        self._quota = quota
        self.corrupt_reads = 0

    def look(
        self,
        context: ReadContext,
        params: ReadParams,
        refused: Mapping[FetchPartition, ApiError] = NOTHING_REFUSED,
    ) -> Looks:
        """Look at what is worth it, apart from what was `refused` before."""
        room = min(params.max_bytes, self._max_bytes)
        if params.is_follower:
            room = min(room, FOLLOWER_ANSWER_BYTES_MAX)
        found, urgent = 0, False
        looks = []
        for wanted in context.to_look_at():
            look = Look(wanted)
            try:
                if wanted in refused:
                    raise refused[wanted]
                self._look_at(look, params, room, min_one=not found)
            except ApiError as e:
                look.error = e
            except CorruptRecord as damage:
                look.error = self.corrupt(damage)
            except (StorageError, InvariantBroken) as failure:
                if look.partition is not None and isinstance(failure, InvariantBroken):
                    look.partition.stop(str(failure))
                look.error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            if look.slice is not None:
                found += look.slice.size
                room -= look.slice.room
            elif look.urgent or look.prompts():
                urgent = True
            looks.append(look)
        return Looks(looks, found, urgent)

    def _look_at(self, look: Look, params: ReadParams, room: int, *, min_one: bool) -> None:
        wanted = look.wanted
        find = self._replicas.replica_of if params.from_followers else self._replicas.leader_of
        partition = look.partition = find(wanted.topic, wanted.index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        look.diverging = parting(partition, wanted)
        if params.is_follower:
            partition.check_replica(params.replica_id)
            end = partition.log.log_end_offset
        else:
            end = (
                partition.last_stable_offset if params.read_committed else partition.high_watermark
            )
            if params.rack:
                look.preferred = self._selector.select(partition, params.rack, wanted.fetch_offset)
        look.note(partition)
        offset = wanted.fetch_offset
        if look.urgent:
            return
        if end <= offset <= partition.log.log_end_offset:
            if params.read_committed:
                look.aborted = []
            return
        self._find_records(look, partition, params, min(wanted.max_bytes, room), end, min_one)

    def _find_records(
        self,
        look: Look,
        partition: Partition,
        params: ReadParams,
        limit: int,
        end: int,
        min_one: bool,
    ) -> None:
        log, offset = partition.log, look.wanted.fetch_offset
        if params.is_follower and self._throttles(partition, params.replica_id):
            look.more = True
        elif limit > 0 or min_one:
            look.slice = log.read(offset, limit, up_to_offset=end, min_one=min_one)
        else:
            look.more = True
        if params.read_committed:
            read_to = offset
            if look.slice is not None:
                read_to = min(end, log.segments.offset_above(look.slice, log.log_end_offset))
            look.aborted = [
                AbortedTransaction(txn.producer_id, txn.first_offset)
                for txn in log.aborted_transactions(offset, read_to)
            ]

    def _throttles(self, partition: Partition, replica_id: int) -> bool:
        return not partition.in_sync(replica_id) and self._quota.throttles(partition)

    def corrupt(self, error: CorruptRecord) -> ApiError:
        """Count damaged data, and what the client is told of it."""
        self.corrupt_reads += 1  # the log itself has said what and where
        return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


def parting(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    """Where the reader's log parts from this one; None if it does not, or says nothing of it."""
    if wanted.last_fetched_epoch < 0:
        return None
    return divergence(
        partition.log, partition.leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch
    )
