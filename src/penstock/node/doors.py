"""What each listener of a node serves: all of it, or the metadata quorum alone."""

from __future__ import annotations

from penstock.api.dispatcher import OF_QUORUM, Dispatcher
from penstock.serving.services import Services
from penstock.wire.apis import ApiKey


class Doors:
    def __init__(self, services: Services) -> None:
        self._quorum_listeners = services.quorum.listeners
        self._of_all = Dispatcher(services)
        self._of_quorum = Dispatcher(services, OF_QUORUM)

    def of(self, listener: str) -> Dispatcher:
        """Who takes the requests of a listener."""
        return self._of_quorum if listener in self._quorum_listeners else self._of_all

    def open(self, serves: frozenset[ApiKey]) -> None:
        for dispatcher in (self._of_all, self._of_quorum):
            dispatcher.open(serves)
