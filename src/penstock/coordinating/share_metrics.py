"""The share coordinator of this node at each scrape. Owned by the event loop's thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import (
    SHARE_COORDINATOR_PRUNED_OFFSET,
    SHARE_COORDINATOR_STATES,
    SHARE_COORDINATOR_WRITE_SECONDS,
    SHARE_COORDINATOR_WRITES,
)

if TYPE_CHECKING:
    from penstock.coordinating.share_coordinator import ShareCoordinator


class ShareCoordinatorMetrics:
    def __init__(self, registry: Registry, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        coordinator = self._coordinator
        yield SHARE_COORDINATOR_STATES.one(coordinator.states())
        yield SHARE_COORDINATOR_WRITES.one(coordinator.counts.writes)
        seconds = SHARE_COORDINATOR_WRITE_SECONDS
        yield Reading(seconds, coordinator.write_seconds.samples(seconds.name, {}))
        pruned = SHARE_COORDINATOR_PRUNED_OFFSET
        samples = [pruned.sample(n, str(index)) for index, n in sorted(coordinator.pruned.items())]
        yield Reading(pruned, samples)
