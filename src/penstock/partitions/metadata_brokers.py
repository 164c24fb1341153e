"""The brokers as replication sees them: which take part, under which epoch, at which address."""

from __future__ import annotations

from penstock.metadata.image import MetadataImage
from penstock.peers.connection import Address


class MetadataBrokers:
    def __init__(self, image: MetadataImage, listener: str) -> None:
        """`listener` is the name of the one by which brokers reach each other."""
        self._image = image
        self._listener = listener

    def broker_epoch(self, broker_id: int) -> int | None:
        broker = self._image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def takes_part(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def address(self, broker_id: int) -> Address | None:
        """Where the broker is reached by others, if it is registered."""
        broker = self._image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)
