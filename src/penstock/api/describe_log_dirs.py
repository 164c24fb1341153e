"""DescribeLogDirs (35), versions 1 to 5: how much the partitions take in the data folder.

A node has one data folder. A replica that was stopped, since it broke an invariant, is listed as a
folder of its own that has failed. Partitions that are not here are left out, as Kafka does; the
metadata log is not listed. The size of a log that is not open is asked of the file system, a few
partitions in each turn of the loop, so that a broker with many of them goes on serving.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.metadata.assignments import cordoned
from penstock.serving.broker import Broker
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

PARTITIONS_PER_TURN = 200


@handler(DescribeLogDirsRequest, DescribeLogDirsResponse)
async def describe_log_dirs(
    broker: Broker, request: Request[DescribeLogDirsRequest]
) -> DescribeLogDirsResponse:
    me = broker.metadata.brokers.get(broker.node_id)
    result = DescribeLogDirsResult(
        log_dir=broker.logs.data_dir,
        is_cordoned=me is not None and cordoned(broker.metadata, me),
    )
    try:
        result.total_bytes, result.usable_bytes = broker.logs.disk_space()
        result.topics = await _topics(broker, request.body.topics)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(results=[result, *_stopped(broker)])


def _stopped(broker: Broker) -> Iterator[DescribeLogDirsResult]:
    for tp, _ in broker.replicas.stopped.values():
        partition = DescribeLogDirsPartition(partition_index=tp.partition)
        yield DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR,
            log_dir=f"{broker.logs.data_dir}/{tp}",
            topics=[DescribeLogDirsTopic(name=tp.topic, partitions=[partition])],
        )


async def _topics(
    broker: Broker, wanted: list[DescribableLogDirTopic] | None
) -> list[DescribeLogDirsTopic]:
    held = list(_held(broker, wanted))
    described: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for start in range(0, len(held), PARTITIONS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        on_disk = broker.logs.partitions()
        for tp in held[start : start + PARTITIONS_PER_TURN]:
            # A partition gets its folder when it is first used.
            size = broker.logs.size_of(tp) if tp in on_disk else 0
            described[tp.topic].append(
                DescribeLogDirsPartition(partition_index=tp.partition, partition_size=size)
            )
    return [DescribeLogDirsTopic(name=name, partitions=p) for name, p in described.items()]


def _held(broker: Broker, wanted: list[DescribableLogDirTopic] | None) -> Iterator[TopicPartition]:
    """Those of the wanted partitions (None: of all) that have a replica on this node."""
    topics = broker.metadata.topics
    if wanted is None:
        named = [(name, list(range(len(topic.partitions)))) for name, topic in topics.items()]
    else:
        named = [(topic.topic, topic.partitions) for topic in wanted]
    for name, indexes in named:
        partitions = topics[name].partitions if name in topics else []
        for index in dict.fromkeys(indexes):
            if 0 <= index < len(partitions) and broker.node_id in partitions[index].replicas:
                yield TopicPartition(name, index)
