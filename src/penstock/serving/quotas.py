"""Quotas of clients: what they use is counted here, and held against what the metadata allows.

A door asks `active`; while that is true, it has `usage` made for each request of a client and hands
it to the service that it calls. The result says how long the client has to wait: the door answers
at once, tells the client that time, and takes nothing more from its connection until it is over.
What nodes ask of each other has no usage. A change of the metadata holds from the next request on.

Each node counts what comes to it. What the active controller changes is counted there, for the
whole cluster: a new one begins with full buckets.

Limits: those of `auth.client_quotas`. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.auth.client_quotas import ClientQuotas, Throttles
from penstock.auth.principal import Principal
from penstock.auth.quota_windows import Windows
from penstock.auth.throttling import Throttling
from penstock.auth.types import Operation
from penstock.auth.usage import LoopTime, TimedMutations, Usage
from penstock.base.clock import Clock
from penstock.config.broker_config import BrokerConfig
from penstock.metadata.delta import QuotaEntity, SecurityDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.quota_control import describe_quotas
from penstock.net.turn import in_turns
from penstock.serving.rights import Rights
from penstock.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


class KindCounts(NamedTuple):
    """What was counted for one kind of quota."""

    quota: str
    throttles: Mapping[tuple[str, str], Throttles]
    waiting: int
    """Buckets that keep somebody waiting."""
    buckets: int


class QuotaService:
    __slots__ = ("_image", "_quotas", "_rights", "_throttling", "_time", "active")

    def __init__(
        self, image: MetadataImage, rights: Rights, config: BrokerConfig, clock: Clock
    ) -> None:
        self._image = image
        self._rights = rights
        self._quotas = ClientQuotas(
            Windows(config.quota_window_num, config.quota_window_size_seconds),
            Windows(
                config.controller_quota_window_num, config.controller_quota_window_size_seconds
            ),
        )
        self._throttling = Throttling(self._quotas)
        self._time = LoopTime(clock)
        self.active = False
        """Whether any request has to be counted."""

    def apply(self, delta: SecurityDelta) -> None:
        """`delta` was applied to the image."""
        if delta.quotas:
            self._follow(delta.quotas)

    def load(self) -> None:
        """The metadata has caught up: no delta tells of what came with a snapshot."""
        self._follow(self._image.security.quotas)

    def _follow(self, entities: Iterable[QuotaEntity]) -> None:
        quotas, found = self._quotas, self._image.security.quotas
        for entity in entities:
            values = found.get(entity, {})
            for key, _ in quotas.tables():
                quotas.alter(dict(entity), key, values.get(key))
        self.active = quotas.active

    # -- what clients use ----------------------------------------------------------------------

    def usage(self, principal: Principal, client_id: str | None, size: int) -> Usage:
        """Of a request that came in `size` bytes."""
        return Usage(self._throttling, self._time, principal.name, client_id or "", size)

    def mutations(
        self, principal: Principal, client_id: str | None, *, strict: bool
    ) -> TimedMutations | None:
        """Of a request to the active controller on this node; None if nothing bounds them.

        `strict`: it is refused what is too much, instead of being told to wait after it.
        """
        if not self._quotas.mutations.active:
            return None
        mutations = self._throttling.mutations(principal.name, client_id or "", strict=strict)
        return TimedMutations(mutations, self._time)

    def connecting(self, ip: str) -> float:
        """For how many seconds a connection from `ip` is to be held up, and then closed; 0 if it
        may stay.
        """
        return self._throttling.connecting(ip, self._time.now_ms()) / 1000

    # -- telling -------------------------------------------------------------------------------

    async def describe(
        self, principal: Principal, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        """The quotas of the entities that a filter matches, as they are now."""
        self._rights.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        return await in_turns(describe_quotas(self._image.security, request))

    def counted(self) -> Iterator[KindCounts]:
        """What metrics show."""
        now_ms = self._time.now_ms()
        for key, table in self._quotas.tables():
            yield KindCounts(key, table.throttles, table.waiting(now_ms), len(table))
