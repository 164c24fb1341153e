"""Offsets of partitions, by time and by the special times of Kafka.

There is no remote tier, so the earliest local offset is the earliest, and there is no tiered
offset. A new leader that does not know yet how far its predecessor had committed refuses with
OFFSET_NOT_AVAILABLE where that matters. Records are searched in worker threads
(`log.time_lookup`); everything else is owned by the event loop's thread.
"""

from __future__ import annotations

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.log.manager import LogManager
from penstock.log.time_lookup import MAX_TIMESTAMP, Allowance, TimestampOffset
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.read_plan import READ_COMMITTED
from penstock.serving.rights import Rights

__all__ = ["MAX_TIMESTAMP", "OffsetLookup", "OffsetService", "TimestampOffset", "asks_for_record"]

LATEST, EARLIEST = -1, -2
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NOT_FOUND = TimestampOffset(-1, -1, -1)
FOLLOWER = -1
"""In the place of an isolation level: everything is visible."""


def asks_for_record(timestamp: int) -> bool:
    """Whether it asks for a record, and not for an offset of the log itself."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


class OffsetService:
    def __init__(self, replicas: ReplicaManager, logs: LogManager, rights: Rights) -> None:
        self._replicas = replicas
        self._logs = logs
        self._rights = rights

    def lookup(self, principal: Principal, isolation: int) -> OffsetLookup:
        """What one request asks for."""
        return OffsetLookup(self._replicas, self._logs, self._rights, principal, isolation)


class OffsetLookup:
    """The look-ups of one request, which share a limit of work on the event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        rights: Rights,
        principal: Principal,
        isolation: int,
    ) -> None:
        self._replicas = replicas
        self._logs = logs
        self._rights = rights
        self._principal = principal
        self._isolation = isolation
        self._allowance = Allowance()

    def mark(self, topic: str, index: int, leader_epoch: int, timestamp: int) -> TimestampOffset:
        """The offset of the log that the special `timestamp` asks for."""
        try:
            return self._mark(self._leader(topic, index, leader_epoch), timestamp)
        except StorageError as e:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e

    async def record(
        self, topic: str, index: int, leader_epoch: int, timestamp: int
    ) -> TimestampOffset:
        """The record that `timestamp` asks for."""
        try:
            partition = self._leader(topic, index, leader_epoch)
            found = await self._found(partition, timestamp)
            # Meanwhile the partition may have another leader, or be gone.
            if self._leader(topic, index, leader_epoch) is not partition:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return self._visible(partition, found)
        except StorageError as e:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e

    def _leader(self, topic: str, index: int, leader_epoch: int) -> Partition:
        self._rights.require_topic(self._principal, Operation.DESCRIBE, topic)
        partition = self._replicas.leader_of(topic, index)
        partition.check_leader_epoch(leader_epoch)
        return partition

    def _mark(self, partition: Partition, timestamp: int) -> TimestampOffset:
        log = partition.log
        if timestamp == LATEST:
            if self._is_uncertain(partition):
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return TimestampOffset(-1, self._end(partition), partition.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            if start == log.log_end_offset:
                return TimestampOffset(-1, start, partition.leader_epoch)
            return TimestampOffset(-1, start, log.epochs.epoch_for_offset(start))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOT_FOUND
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there is no special timestamp {timestamp}")

    async def _found(self, partition: Partition, timestamp: int) -> TimestampOffset | None:
        try:
            return await self._logs.lookups.find(partition.log, timestamp, self._allowance)
        except StorageError:
            if self._replicas.hosted(partition.log.topic_partition) is partition:
                raise
            return None  # deleted meanwhile: the next check of its leader reports it

    def _visible(self, partition: Partition, found: TimestampOffset | None) -> TimestampOffset:
        """The answer for a record that was found."""
        if found is not None and found.offset < self._end(partition):
            return found
        if self._is_uncertain(partition):
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOT_FOUND

    def _is_uncertain(self, partition: Partition) -> bool:
        return self._isolation != FOLLOWER and partition.offset_not_available

    def _end(self, partition: Partition) -> int:
        """Where the data that is visible to the client ends."""
        if self._isolation == FOLLOWER:
            return partition.log.log_end_offset
        if self._isolation == READ_COMMITTED:
            return partition.last_stable_offset
        return partition.high_watermark
