"""AlterReplicaLogDirs (34), versions 1 and 2: move replicas to another data folder of this broker.

A node has one data folder, so that there is nowhere to move to: a replica that lies in the named
folder already is fine, another folder does not exist (LOG_DIR_NOT_FOUND), and a replica that is
not on this broker is not available. Run a node per disk and reassign partitions between them.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.broker import Broker
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handler(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
def alter_replica_log_dirs(
    broker: Broker, request: Request[AlterReplicaLogDirsRequest]
) -> AlterReplicaLogDirsResponse:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in request.body.dirs:
        for topic in folder.topics:
            result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            result.partitions += [
                AlterReplicaLogDirPartitionResult(
                    partition_index=index,
                    error_code=_error(broker, folder.path, topic.name, index),
                )
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _error(broker: Broker, path: str, name: str, index: int) -> ErrorCode:
    if path != broker.logs.data_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = broker.metadata.topics.get(name)
    partition = None if topic is None else broker.metadata.partition(topic.id, index)
    if partition is None or broker.node_id not in partition.replicas:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
