"""DeleteRecords (21), versions 0 to 2: move a partition's log start up.

Offset -1 means the high watermark. A topic that is only compacted refuses, as in Kafka. The
answer waits until every live replica has moved its log start, or for the request's time-out.
"""

from __future__ import annotations

import asyncio

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_LOW_WATERMARK = -1


@handler(DeleteRecordsRequest, DeleteRecordsResponse)
async def delete_records(
    services: Services, request: Request[DeleteRecordsRequest]
) -> DeleteRecordsResponse:
    deadline = asyncio.get_running_loop().time() + request.body.timeout_ms / 1000
    # All of them begin at once, so that none uses up the time of those behind it.
    topics = [
        (
            topic.name,
            [
                asyncio.ensure_future(_delete(services, request, topic.name, wanted, deadline))
                for wanted in topic.partitions
            ],
        )
        for topic in request.body.topics
    ]
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=list(await asyncio.gather(*results)))
            for name, results in topics
        ]
    )


async def _delete(
    services: Services,
    request: Request[DeleteRecordsRequest],
    topic: str,
    wanted: DeleteRecordsPartition,
    deadline: float,
) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        low_watermark = await services.records.delete(
            request.principal, topic, index, wanted.offset, deadline
        )
    except ApiError as e:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=e.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
