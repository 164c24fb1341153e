"""AlterReplicaLogDirs (34), versions 1 and 2: move replicas to another data folder of this broker.

A node has one data folder, so that there is nowhere to move to: a replica that lies in the named
folder already is fine, another folder does not exist (LOG_DIR_NOT_FOUND), and a replica that is
not on this broker is not available. Run a node per disk and reassign partitions between them.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.steps import Steps
from penstock.serving.services import Services
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handler(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
def alter_replica_log_dirs(
    services: Services, request: Request[AlterReplicaLogDirsRequest]
) -> Steps[AlterReplicaLogDirsResponse]:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in request.body.dirs:
        for topic in folder.topics:
            result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            for index in topic.partitions:
                code = services.log_dirs.move(request.principal, folder.path, topic.name, index)
                result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
                yield
    return AlterReplicaLogDirsResponse(results=list(results.values()))
