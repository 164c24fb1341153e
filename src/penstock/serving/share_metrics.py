"""What share groups do on this node, read at each scrape: the share-partitions some at a time
(`COUNTED_PER_PART`), so that requests are served in between. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import (
    SHARE_ACKNOWLEDGEMENTS,
    SHARE_DEAD_LETTER_FAILURES,
    SHARE_DEAD_LETTERS,
    SHARE_DEAD_LETTERS_LOST,
    SHARE_DEAD_LETTERS_SHORTENED,
    SHARE_DEAD_LETTERS_WAITING,
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
        in_flight, waiting = 0, Counter[str]()
        for number, driver in enumerate(share.partitions, 1):
            in_flight += driver.records_in_flight
            if driver.core is not None and driver.core.waiting_dead_letters:
                waiting[driver.key.group_id] += driver.core.waiting_dead_letters
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
        yield from self._dead_letters(waiting)

    def _dead_letters(self, waiting: Counter[str]) -> Iterator[Reading]:
        """Of the groups that have had some on this node, and of those where some wait."""
        counts = self._share.partitions.dead_letters.counts
        written, shortened, lost, failures = [], [], [], []
        for group_id, of_group in counts.items():
            written.append(SHARE_DEAD_LETTERS.sample(of_group.written, group_id))
            shortened.append(SHARE_DEAD_LETTERS_SHORTENED.sample(of_group.shortened, group_id))
            for reason, count in of_group.lost.items():
                lost.append(SHARE_DEAD_LETTERS_LOST.sample(count, group_id, reason))
            for reason, count in of_group.failures.items():
                failures.append(SHARE_DEAD_LETTER_FAILURES.sample(count, group_id, reason))
        waits = [
            SHARE_DEAD_LETTERS_WAITING.sample(waiting[group_id], group_id)
            for group_id in counts.keys() | waiting.keys()
        ]
        yield Reading(SHARE_DEAD_LETTERS, written)
        yield Reading(SHARE_DEAD_LETTERS_SHORTENED, shortened)
        yield Reading(SHARE_DEAD_LETTERS_WAITING, waits)
        yield Reading(SHARE_DEAD_LETTERS_LOST, lost)
        yield Reading(SHARE_DEAD_LETTER_FAILURES, failures)
