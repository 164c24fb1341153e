"""Where partitions end, whichever nodes lead them: one request to each of those nodes.

Limit: `ANSWER_S_MAX`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.base.errors import ApiError, ErrorCode, PenstockError
from penstock.base.ids import TopicPartition
from penstock.peers.peers import Channel
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from penstock.metadata.image import MetadataImage
    from penstock.partitions.metadata_brokers import MetadataBrokers
    from penstock.partitions.replica_manager import ReplicaManager
    from penstock.peers.peers import Peers

ANSWER_S_MAX: Final = 5.0
CLIENT: Final = -1
"""In the place of a replica's id."""
LATEST: Final = -1
"""In the place of a time: the end."""

Ends: TypeAlias = dict[TopicPartition, "int | ErrorCode"]


class EndOffsets:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataImage,
        replicas: ReplicaManager,
        brokers: MetadataBrokers,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._brokers = brokers
        self._peers = peers

    async def latest(self, partitions: Iterable[TopicPartition]) -> Ends:
        """The high watermark of each partition, or why it is not known."""
        ends: Ends = {}
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self._leader(tp)
            if leader == self._node_id:
                ends[tp] = self._here(tp)
            elif leader is None or leader < 0:
                ends[tp] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_node.setdefault(leader, []).append(tp)
        for found in await asyncio.gather(*(self._ask(n, tps) for n, tps in by_node.items())):
            ends |= found
        return ends

    def _leader(self, tp: TopicPartition) -> int | None:
        topic = self._metadata.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition].leader

    def _here(self, tp: TopicPartition) -> int | ErrorCode:
        try:
            partition = self._replicas.leader_of(tp.topic, tp.partition)
        except ApiError as e:
            return e.code
        except PenstockError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition.offset_not_available:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return partition.high_watermark

    async def _ask(self, node: int, partitions: list[TopicPartition]) -> Ends:
        unknown: Ends = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        address = self._brokers.address(node)
        if address is None:
            return unknown
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp in partitions:
            asked = ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST)
            topics.setdefault(tp.topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=CLIENT,
            topics=[ListOffsetsTopic(name=n, partitions=asked) for n, asked in topics.items()],
        )
        try:
            answer = await self._peers.send(
                address, Channel.OFFSETS, request, timeout_s=ANSWER_S_MAX
            )
        except PenstockError:
            return unknown
        return unknown | {
            TopicPartition(topic.name, found.partition_index): found.offset
            if not found.error_code
            else ErrorCode(found.error_code)
            for topic in answer.topics
            for found in topic.partitions
        }
