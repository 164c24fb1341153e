"""Where a partition's new leader is (KIP-951): sent along with the errors that mean it has one.

So a client can switch without a Metadata request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicKey
from penstock.base.results import LeaderEndpoint
from penstock.metadata.image import MetadataImage
from penstock.partitions.replica_manager import ReplicaManager

_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHints:
    def __init__(self, image: MetadataImage, replicas: ReplicaManager) -> None:
        self._image = image
        self._replicas = replicas

    def leader(self, code: int, topic: TopicKey, index: int) -> tuple[int, int] | None:
        """(leader, leader epoch) of a partition, if `code` means that the client needs it."""
        if code not in _MOVED:
            return None
        try:
            _, registration = self._replicas.registration(topic, index)
        except ApiError:
            return None
        return registration.leader, registration.leader_epoch

    def endpoints(self, broker_ids: Iterable[int], listener: str) -> list[LeaderEndpoint]:
        """Where clients of `listener` reach these brokers, as far as they are alive."""
        found = []
        for broker_id in sorted(broker_ids):
            broker = self._image.brokers.get(broker_id)
            endpoint = None if broker is None or broker.fenced else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                found.append(LeaderEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
        return found
