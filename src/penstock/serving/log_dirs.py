"""What the replicas on this node take on its disk.

A node has one data folder. A replica that was stopped, since it broke an invariant, is listed as a
folder of its own that has failed. The size of a log that is not open is asked of the file system, a
few partitions in each turn of the loop, so that a broker with many of them goes on serving.
Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicPartition
from penstock.log.manager import LogManager
from penstock.metadata.assignments import cordoned
from penstock.metadata.image import MetadataImage
from penstock.net.turn import Turn
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.rights import Rights
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

PARTITIONS_PER_CHECK = 50
"""Partitions whose size is asked for before the clock is checked: that is a few system calls for
each.
"""


class LogDirService:
    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        logs: LogManager,
        replicas: ReplicaManager,
        rights: Rights,
    ) -> None:
        self._rights = rights
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self._replicas = replicas

    async def describe(
        self, principal: Principal, wanted: list[DescribableLogDirTopic] | None
    ) -> list[DescribeLogDirsResult]:
        """The data folder with the wanted partitions (None: all), and the replicas that were
        stopped. Partitions that are not here are left out.
        """
        self._rights.require_cluster(principal, Operation.DESCRIBE)
        me = self._image.brokers.get(self._node_id)
        result = DescribeLogDirsResult(
            log_dir=self._logs.data_dir,
            is_cordoned=me is not None and cordoned(self._image, me),
        )
        try:
            result.total_bytes, result.usable_bytes = self._logs.disk_space()
            result.topics = await self._topics(wanted)
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return [result, *self._stopped()]

    def move(self, principal: Principal, path: str, name: str, index: int) -> ErrorCode:
        """Whether a replica can be moved to the folder: only if it lies there already."""
        if not self._rights.cluster(principal, Operation.ALTER):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        try:
            self._rights.require_change(principal)
        except ApiError as e:
            return e.code
        if path != self._logs.data_dir:
            return ErrorCode.LOG_DIR_NOT_FOUND
        topic = self._image.topics.get(name)
        partition = None if topic is None else self._image.partition(topic.id, index)
        if partition is None or self._node_id not in partition.replicas:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.NONE

    def _stopped(self) -> Iterator[DescribeLogDirsResult]:
        for tp, _ in self._replicas.stopped.values():
            partition = DescribeLogDirsPartition(partition_index=tp.partition)
            yield DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                log_dir=f"{self._logs.data_dir}/{tp}",
                topics=[DescribeLogDirsTopic(name=tp.topic, partitions=[partition])],
            )

    async def _topics(
        self, wanted: list[DescribableLogDirTopic] | None
    ) -> list[DescribeLogDirsTopic]:
        described: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        turn = Turn()
        for number, tp in enumerate(self._held(wanted), 1):
            # A partition gets its folder when it is first used.
            size = self._logs.size_of(tp) if self._logs.is_stored(tp) else 0
            described[tp.topic].append(
                DescribeLogDirsPartition(partition_index=tp.partition, partition_size=size)
            )
            if number % PARTITIONS_PER_CHECK == 0 and turn.is_over:
                await turn.next()
        return [DescribeLogDirsTopic(name=name, partitions=p) for name, p in described.items()]

    def _held(self, wanted: list[DescribableLogDirTopic] | None) -> Iterator[TopicPartition]:
        """Those of the wanted partitions (None: of all) that have a replica on this node; topics
        may come and go meanwhile.
        """
        named: Iterable[tuple[str, list[int] | None]]
        if wanted is None:
            named = [(name, None) for name in self._image.topics]
        else:
            named = ((topic.topic, topic.partitions) for topic in wanted)
        for name, indexes in named:
            topic = self._image.topics.get(name)
            partitions = [] if topic is None else topic.partitions
            for index in range(len(partitions)) if indexes is None else dict.fromkeys(indexes):
                if 0 <= index < len(partitions) and self._node_id in partitions[index].replicas:
                    yield TopicPartition(name, index)
