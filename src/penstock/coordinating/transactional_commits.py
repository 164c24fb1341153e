"""Offsets in a transaction, on their way to the group coordinator: verified before they are stored.

The offsets of a group are records of a partition of `__consumer_offsets`. The first ones that a
transaction stores there begin it in that partition, so they need what the first batch of a
transaction in any partition needs: that the transaction's coordinator knows of it. From version 5
on the partition is added to the transaction, before it is only verified (the client has sent
AddOffsetsToTxn). A guard, taken before that, shows whether a marker was written in between.

Invariant: nothing is awaited between the last check of the guard and the append.
Owned by the event loop's thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import NO_SEQUENCE, TopicPartition
from penstock.coordinating.transaction_verification import SupportedOperation, TransactionVerifier
from penstock.coordinator.refusals import refuse
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.config.broker_config import BrokerConfig
    from penstock.coordinating.group_coordinator import GroupCoordinator
    from penstock.log.verification import VerificationGuard
    from penstock.partitions.partition import Partition
    from penstock.partitions.replica_manager import ReplicaManager

ABORTABLE_FROM: Final = 4
"""The first version of TxnOffsetCommit that knows TRANSACTION_ABORTABLE."""
ADDS_FROM: Final = 5
"""The first version of TxnOffsetCommit that adds its partition to the transaction (KIP-890)."""

QUESTIONS_MAX: Final = 3
"""How often the coordinator is asked to add the partition: the marker of the producer's last
transaction may arrive while the first request is on its way, and invalidates the guard.
"""

# Errors of the partition or of the verification, as the codes that clients expect for a group.
_OF_GROUPS: Final = {
    # Clients retry, and do not look for another coordinator.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class TransactionalCommits:
    def __init__(
        self,
        groups: GroupCoordinator,
        replicas: ReplicaManager,
        verifier: TransactionVerifier,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._verifier = verifier
        self._clock = clock
        self._config = config

    async def commit(
        self, request: TxnOffsetCommitRequest, version: int, client_id: str, client_host: str
    ) -> TxnOffsetCommitResponse:
        """The answer when the offsets are stored as part of the transaction, or refused."""
        try:
            commit = await self._groups.prepared(request, version)
            # A request that stores nothing is answered by the group alone.
            if request.group_id and commit.wanted:
                await self._verify(request, _operation(version))
            answer = self._groups.submit_transactional(
                request, commit, version, client_id, client_host
            )
        except ApiError as e:
            answer = refuse(request, version, _OF_GROUPS.get(e.code, e.code))
        if inspect.isawaitable(answer):
            answer = await answer
        assert isinstance(answer, TxnOffsetCommitResponse)
        return answer

    async def _verify(self, request: TxnOffsetCommitRequest, operation: SupportedOperation) -> None:
        """Return when the offsets may be appended, in this turn of the loop; ApiError if not."""
        producer_id, epoch = request.producer_id, request.producer_epoch
        if producer_id < 0:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a transaction has a producer")
        partition = self._partition_of(request.group_id)
        if not operation.adds and not self._config().transaction_partition_verification_enable:
            return
        leader_epoch = partition.leader_epoch
        for _ in range(QUESTIONS_MAX if operation.adds else 1):
            guard = partition.log.producers.begin_verification(
                producer_id, epoch, NO_SEQUENCE, self._clock.now_ms(), starts_at_zero=operation.adds
            )
            if guard is None:
                break
            await self._ask(request, partition.index, operation)
            partition = self._partition_of(request.group_id)
            if partition.log.producers.guards.get(producer_id) is guard:
                break
        self._check(request, partition, leader_epoch, guard)

    async def _ask(
        self, request: TxnOffsetCommitRequest, index: int, operation: SupportedOperation
    ) -> None:
        asked = TopicPartition(OFFSETS_TOPIC, index)
        errors = await self._verifier.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [asked],
            operation,
        )
        code = errors.get(asked, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"{asked} is not in the transaction")

    def _check(
        self,
        request: TxnOffsetCommitRequest,
        partition: Partition,
        leader_epoch: int,
        guard: VerificationGuard | None,
    ) -> None:
        if partition.leader_epoch != leader_epoch:
            # Markers may have been written by another leader in between.
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the group's coordinator has changed while the transaction was being verified",
            )
        partition.log.producers.check_verified(request.producer_id, request.producer_epoch, guard)

    def _partition_of(self, group_id: str) -> Partition:
        index = self._groups.partition_of(group_id)
        if index is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"there is no {OFFSETS_TOPIC} yet")
        return self._replicas.leader_of(OFFSETS_TOPIC, index)


def _operation(version: int) -> SupportedOperation:
    if version >= ADDS_FROM:
        return SupportedOperation.ADD_PARTITION
    if version >= ABORTABLE_FROM:
        return SupportedOperation.GENERIC_ERROR
    return SupportedOperation.DEFAULT_ERROR
