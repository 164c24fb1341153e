"""DeleteRecords (21), versions 0 to 2: move a partition's log start up.

Offset -1 means the high watermark. A topic that is only compacted refuses, as in Kafka. The
answer waits until every live replica has moved its log start, or for the request's time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.partitions.partition import Partition
from penstock.serving.broker import Broker
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


@handler(DeleteRecordsRequest, DeleteRecordsResponse)
async def delete_records(
    broker: Broker, request: Request[DeleteRecordsRequest]
) -> DeleteRecordsResponse:
    deadline = asyncio.get_running_loop().time() + request.body.timeout_ms / 1000
    topics = [
        (topic.name, [_delete(broker, topic.name, wanted, deadline) for wanted in topic.partitions])
        for topic in request.body.topics
    ]
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=list(await asyncio.gather(*results)))
            for name, results in topics
        ]
    )


def _delete(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition, deadline: float
) -> Awaitable[DeleteRecordsPartitionResult]:
    """Move the leader's log start at once; the result follows."""
    index = wanted.partition_index
    try:
        partition = broker.replicas.leader_of(topic, index)
        offset = _move_log_start(partition, wanted.offset)
    except ApiError as e:
        return _refused(index, e.code)
    except StorageError:
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return _deleted(partition, offset, deadline)


def _move_log_start(partition: Partition, offset: int) -> int:
    policy = partition.log.config.cleanup_policy
    if policy and "delete" not in policy:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    if offset == TO_HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    partition.delete_records(offset)
    return offset


async def _deleted(
    partition: Partition, offset: int, deadline: float
) -> DeleteRecordsPartitionResult:
    if partition.low_watermark < offset:
        try:
            async with asyncio.timeout_at(deadline):
                await partition.deletions.add(offset)
        except TimeoutError:
            return await _refused(partition.index, ErrorCode.REQUEST_TIMED_OUT)
        except ApiError as e:
            return await _refused(partition.index, e.code)
    return DeleteRecordsPartitionResult(
        partition_index=partition.index, low_watermark=partition.low_watermark
    )


async def _refused(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=code
    )
