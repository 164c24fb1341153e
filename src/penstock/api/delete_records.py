"""DeleteRecords (21), versions 0 to 2: move a partition's log start up.

Offset -1 means the high watermark. A topic that is only compacted refuses, as in Kafka. The
answer waits until every live replica has moved its log start, or for the request's time-out.
"""

from __future__ import annotations

import asyncio

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.net.turn import Turn
from penstock.serving.services import Services
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

PARTITIONS_PER_CHECK = 20
"""Partitions that begin before the clock is checked: a log may have to be opened for each."""
_NO_LOW_WATERMARK = -1


@handler(DeleteRecordsRequest, DeleteRecordsResponse)
async def delete_records(
    services: Services, request: Request[DeleteRecordsRequest]
) -> DeleteRecordsResponse:
    deadline = asyncio.get_running_loop().time() + request.body.timeout_ms / 1000
    # None waits for the end of another, or it would use up the time of those behind it.
    topics: list[tuple[str, list[asyncio.Task[DeleteRecordsPartitionResult]]]] = []
    begun, turn = 0, Turn()
    for topic in request.body.topics:
        tasks: list[asyncio.Task[DeleteRecordsPartitionResult]] = []
        topics.append((topic.name, tasks))
        for wanted in topic.partitions:
            work = _delete(services, request, topic.name, wanted, deadline)
            tasks.append(asyncio.create_task(work))
            begun += 1
            if begun % PARTITIONS_PER_CHECK == 0:
                await asyncio.sleep(0)  # they do their work on the loop, in the next turn
                if turn.is_over:
                    await turn.next()
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=[await task for task in tasks])
            for name, tasks in topics
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
