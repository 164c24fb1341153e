"""What the nodes of the metadata quorum ask of each other. Owned by the event loop's thread."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.controlling.quorum_driver import QuorumDriver
from penstock.controlling.quorum_fetches import Done, QuorumFetch
from penstock.serving.rights import Rights
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.schema import Message


class QuorumService:
    def __init__(
        self, driver: QuorumDriver, rights: Rights, listeners: Collection[str] = ()
    ) -> None:
        """`listeners` serve the metadata quorum and nothing else."""
        self._driver = driver
        self._rights = rights
        self.listeners = frozenset(listeners)

    def require_node(self, principal: Principal) -> None:
        """`ApiError` unless it may speak for a node."""
        self._rights.require_cluster(principal, Operation.CLUSTER_ACTION)

    @property
    def has_started(self) -> bool:
        """Whether the node has found its cluster and takes part in the quorum."""
        return self._driver.has_started

    @property
    def is_new(self) -> bool:
        """Whether the node has never been part of a cluster."""
        return self._driver.log.is_new

    def handle(self, principal: Principal, request: Message, listener: str) -> Awaitable[Any]:
        """The response to a vote, the begin or end of an epoch, or a change of a voter, that came
        in by `listener`.
        """
        self.require_node(principal)
        return self._driver.handle(request, listener)

    def fetch(
        self, principal: Principal, request: FetchRequest, listener: str, done: Done
    ) -> QuorumFetch:
        """Have `done` called with records of the metadata log, when there are any; with None, if
        the caller has to ask another node.
        """
        self.require_node(principal)
        return self._driver.fetches.fetch(request, listener, done)

    def fetch_snapshot(
        self, principal: Principal, request: FetchSnapshotRequest, listener: str
    ) -> Awaitable[Any]:
        """A piece of a snapshot of the metadata."""
        self.require_node(principal)
        return self._driver.fetches.fetch_snapshot(request, listener)
