"""Ends transactions in this node's partitions: what WriteTxnMarkers asks for.

Duty: append the control batch of each marker to each of its partitions and answer when it is
committed (acks=all). In a partition of `__consumer_offsets` the group coordinator ends the
transaction, since its memory has to follow. Each marker and partition has its own answer; a marker
that is sent again is written again, which does no harm.

Limits: `COMMIT_TIMEOUT_S`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.coordinating.shard_records import marker_batch
from penstock.coordinator.effects import EndTxnMarker
from penstock.log.producer_state import AppendOrigin
from penstock.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.waiting import ACKS_ALL
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

COMMIT_TIMEOUT_S: Final = 30.0
"""How long a marker may wait to be replicated before the coordinator has to send it again."""

# The transaction coordinator knows partitions, not groups. That the group's coordinator is not here
# or not ready means to it that the partition is not led here.
_TO_TRANSACTION_COORDINATOR: Final = dict.fromkeys(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class _Append:
    """One marker in one partition, until it is committed."""

    __slots__ = ("_timer", "code")
    outlives_leadership = False  # the coordinator sends it to the next leader

    def __init__(self) -> None:
        self.code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def waits(self) -> None:
        """Wait until the marker is committed, at most `COMMIT_TIMEOUT_S`."""
        loop = asyncio.get_running_loop()
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        self._timer = loop.call_later(COMMIT_TIMEOUT_S, self._ended, timed_out)

    def appended(self) -> None:
        self._ended(ErrorCode.NONE)

    def failed(self, code: ErrorCode, message: str) -> None:
        self._ended(code)

    def _ended(self, code: ErrorCode) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.code.done():
            self.code.set_result(code)


class MarkersHere:
    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        end_in_group: Callable[[int, EndTxnMarker], Awaitable[ErrorCode]],
    ) -> None:
        """`end_in_group` ends a transaction in a partition of the offsets."""
        self._replicas = replicas
        self._clock = clock
        self._end_in_group = end_in_group

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """The answer when every marker of `request` is committed or has failed."""
        response = WriteTxnMarkersResponse()
        answers: list[tuple[WritableTxnMarkerPartitionResult, Awaitable[ErrorCode]]] = []
        for wanted in request.markers:
            marker = _ordered(wanted)
            result = WritableTxnMarkerResult(producer_id=marker.producer_id)
            response.markers.append(result)
            for topic in wanted.topics:
                partitions = [
                    WritableTxnMarkerPartitionResult(partition_index=index)
                    for index in topic.partition_indexes
                ]
                result.topics.append(
                    WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)
                )
                for partition in partitions:
                    code = self._end(marker, topic.name, partition.partition_index)
                    if isinstance(code, ErrorCode):
                        partition.error_code = code
                    else:
                        answers.append((partition, code))
        for partition, promised in answers:
            how = await promised
            partition.error_code = _TO_TRANSACTION_COORDINATOR.get(how, how)
        return response

    def _end(
        self, marker: EndTxnMarker, topic: str, index: int
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """Why the marker cannot be appended, or a future of its outcome."""
        if min(marker.producer_id, marker.producer_epoch, marker.transaction_version) < 0:
            return ErrorCode.INVALID_REQUEST  # no producer: the log would keep a state for it
        if topic == TRANSACTIONS_TOPIC:
            # No transaction can be open there, and the coordinator could not replay a marker.
            return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        try:
            partition = self._replicas.leader_of(topic, index)
            if topic == OFFSETS_TOPIC:
                return asyncio.ensure_future(self._end_in_group(index, marker))
            return self._stage(partition, marker)
        except ApiError as e:
            return e.code
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR

    def _stage(self, partition: Partition, marker: EndTxnMarker) -> Awaitable[ErrorCode]:
        if partition.under_min_isr:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        partition.log.producers.check_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        now_ms = self._clock.now_ms()
        append = _Append()
        batch = marker_batch(marker, now_ms)
        partition.stage(batch, now_ms, ACKS_ALL, append, AppendOrigin.COORDINATOR)
        return append.code


def _ordered(wanted: WritableTxnMarker) -> EndTxnMarker:
    return EndTxnMarker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.coordinator_epoch,
        wanted.transaction_result,
        wanted.transaction_version,
    )
