"""DeleteRecords (21), versions 0 to 2: move a partition's log start up.

Offset -1 means the high watermark. A topic that is only compacted refuses, as in Kafka.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.broker.broker import Broker
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
def delete_records(broker: Broker, request: Request[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    broker.write_turn()
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(broker, topic.name, p) for p in topic.partitions],
            )
            for topic in request.body.topics
        ]
    )


def _delete(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = broker.replicas.leader_of(topic, index)
        policy = partition.log.config.cleanup_policy
        if policy and "delete" not in policy:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        offset = wanted.offset
        if offset == TO_HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.log.delete_records(offset)
        broker.log_start_moved(partition)
    except ApiError as e:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=e.code
        )
    except StorageError:
        return DeleteRecordsPartitionResult(
            partition_index=index,
            low_watermark=_NO_LOW_WATERMARK,
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        )
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=partition.log.log_start_offset
    )
