"""The brokers as replication sees them: which take part, under which epoch, at which address."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.base.endpoints import choose
from penstock.metadata.image import MetadataImage
from penstock.peers.connection import Address


class MetadataBrokers:
    def __init__(self, image: MetadataImage, listeners: Sequence[str]) -> None:
        """`listeners`: the one by which this broker reaches others, then those that it may use
        while another one does not offer that.
        """
        self._image = image
        self._listeners = listeners

    def broker_epoch(self, broker_id: int) -> int | None:
        broker = self._image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def takes_part(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def address(self, broker_id: int) -> Address | None:
        """Where the broker is reached by others, if it is registered."""
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else choose(broker.endpoints, self._listeners)
        return None if endpoint is None else Address(endpoint.host, endpoint.port, endpoint.name)
