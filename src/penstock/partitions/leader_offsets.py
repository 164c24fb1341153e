"""Where a leader's logs begin and end: asked when a follower's log lies outside of them."""

from __future__ import annotations

from typing import TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.partitions.partition import Partition
from penstock.peers.connection import PeerConnection
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, EARLIEST = -1, -2

Key: TypeAlias = tuple[Uuid, int]
Range: TypeAlias = tuple[int, int, int]
"""The log's start and end, and an error code."""


async def ask_offsets(
    connection: PeerConnection, node_id: int, wanted: list[tuple[Partition, int]]
) -> dict[Key, Range]:
    """The range of each partition on its leader, asked for under a leader epoch."""
    ends = await _ask(connection, node_id, wanted, LATEST)
    starts = await _ask(connection, node_id, wanted, EARLIEST)
    found: dict[Key, Range] = {}
    for partition, _ in wanted:
        name = (partition.topic, partition.index)
        start, start_code = starts.get(name, (-1, int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        end, end_code = ends.get(name, (-1, int(ErrorCode.UNKNOWN_SERVER_ERROR)))
        found[partition.topic_id, partition.index] = (start, end, start_code or end_code)
    return found


async def _ask(
    connection: PeerConnection, node_id: int, wanted: list[tuple[Partition, int]], time: int
) -> dict[tuple[str, int], tuple[int, int]]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, leader_epoch in wanted:
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(
                partition_index=partition.index,
                current_leader_epoch=leader_epoch,
                timestamp=time,
            )
        )
    response = await connection.send(
        ListOffsetsRequest(
            replica_id=node_id,
            topics=[
                ListOffsetsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
    )
    return {
        (topic.name, partition.partition_index): (partition.offset, partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
