"""The records of partitions that this node leads: deletion from the front, and queries.

Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.metadata.names import AUDIT_TOPIC, check_topic_name
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.rights import Rights
from penstock.wire.messages.describe_producers import ProducerState

TO_HIGH_WATERMARK = -1


class RecordService:
    def __init__(self, replicas: ReplicaManager, rights: Rights) -> None:
        self._replicas = replicas
        self._rights = rights

    async def delete(
        self, principal: Principal, topic: str, index: int, offset: int, deadline: float
    ) -> int:
        """Move a partition's log start up to `offset`, `TO_HIGH_WATERMARK` for all that is
        committed, and give the new low watermark: when every live replica has moved, or
        REQUEST_TIMED_OUT at `deadline`, a time of the event loop.
        """
        self._rights.require_topic(principal, Operation.DELETE, topic)
        self._rights.require_change(principal)
        if topic == AUDIT_TOPIC:
            raise ApiError(ErrorCode.POLICY_VIOLATION)  # its retention alone ends its records
        try:
            partition = self._replicas.leader_of(topic, index)
            offset = _move_log_start(partition, offset)
        except StorageError as e:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        if partition.low_watermark < offset:
            try:
                async with asyncio.timeout_at(deadline):
                    await partition.deletions.add(offset)
            except TimeoutError as e:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from e
        return partition.low_watermark

    def end_of_epoch(
        self, principal: Principal, topic: str, index: int, leader_epoch: int, epoch: int
    ) -> tuple[int, int]:
        """(epoch, end offset) of the latest epoch up to `epoch`; `leader_epoch` is the one that
        the client knows, -1 for none.
        """
        if not self._rights.cluster(principal, Operation.CLUSTER_ACTION):
            self._rights.require_topic(principal, Operation.DESCRIBE, topic)
        partition = self._replicas.leader_of(topic, index)
        partition.check_leader_epoch(leader_epoch)
        return partition.end_of_epoch(epoch)

    def producers(self, principal: Principal, topic: str, index: int) -> list[ProducerState]:
        """The idempotent and transactional producers that a replica remembers, a follower's too."""
        check_topic_name(topic)
        self._rights.require_topic(principal, Operation.READ, topic)
        producers = self._replicas.replica_of(topic, index).log.producers
        return [
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in producers.producers.values()
        ]


def _move_log_start(partition: Partition, offset: int) -> int:
    """Move the log start of the leader; where it is now."""
    policy = partition.log.config.cleanup_policy
    if policy and "delete" not in policy:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    partition.delete_records(offset)
    return offset
