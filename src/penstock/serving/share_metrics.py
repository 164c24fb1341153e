"""What share groups do on this node, read at each scrape: the share-partitions some at a time
(`COUNTED_PER_PART`), so that requests are served in between. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import (
    SHARE_ACKNOWLEDGEMENTS,
    SHARE_FAILED_LOADS,
    SHARE_FAILED_WRITES,
    SHARE_LOCK_TIMEOUTS,
    SHARE_PARTITIONS,
    SHARE_RECORDS_IN_FLIGHT,
    SHARE_SESSIONS,
    SHARE_SESSIONS_LOST,
)
from penstock.serving.share import ShareService

COUNTED_PER_PART: Final = 1_000
TYPES: Final = ("gap", "accept", "release", "reject", "renew")
"""The types of acknowledgements, by Kafka's numbers."""


class ShareMetrics:
    def __init__(self, registry: Registry, share: ShareService) -> None:
        self._share = share
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        share = self._share
        counts = share.partitions.counts
        yield SHARE_SESSIONS.one(len(share.sessions))
        yield SHARE_SESSIONS_LOST.one(share.sessions.evicted)
        yield SHARE_PARTITIONS.one(len(share.partitions))
        in_flight = 0
        for number, driver in enumerate(share.partitions, 1):
            in_flight += driver.records_in_flight
            if number % COUNTED_PER_PART == 0:
                yield Reading(SHARE_RECORDS_IN_FLIGHT, [])
        yield SHARE_RECORDS_IN_FLIGHT.one(in_flight)
        yield Reading(
            SHARE_ACKNOWLEDGEMENTS,
            [
                SHARE_ACKNOWLEDGEMENTS.sample(count, kind)
                for kind, count in zip(TYPES, counts.acknowledged, strict=True)
            ],
        )
        yield SHARE_LOCK_TIMEOUTS.one(counts.lock_timeouts)
        yield SHARE_FAILED_WRITES.one(counts.failed_writes)
        yield SHARE_FAILED_LOADS.one(counts.failed_loads)
