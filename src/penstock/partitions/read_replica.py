"""Which replica a consumer should read from (KIP-392), as `replica.selector.class` says.

By rack: a consumer is sent to a replica of its own rack that is in sync and holds what it asks for,
to the one furthest ahead if there are several, and stays with the leader where there is none.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.config.broker_cluster import RACK_AWARE_SELECTOR
from penstock.metadata.image import MetadataImage
from penstock.partitions.partition import Partition

LEADER_ITSELF = -1


class ReplicaSelector:
    def __init__(self, image: MetadataImage, selector_class: Callable[[], str | None]) -> None:
        self._image = image
        self._selector_class = selector_class

    def select(self, partition: Partition, rack: str, offset: int) -> int:
        """The broker that a consumer in `rack` should read `offset` from, if not from here."""
        leader = partition.leader
        if leader is None or self._selector_class() != RACK_AWARE_SELECTOR:
            return LEADER_ITSELF
        if self._rack(partition.leader_id) == rack:
            return LEADER_ITSELF
        candidates = [
            (follower.end_offset, follower.last_caught_up_ms, broker_id)
            for broker_id, follower in leader.followers.items()
            if broker_id in leader.isr
            and follower.log_start_offset <= offset <= follower.end_offset
            and self._rack(broker_id) == rack
        ]
        return max(candidates)[2] if candidates else LEADER_ITSELF

    def _rack(self, broker_id: int) -> str | None:
        broker = self._image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack
