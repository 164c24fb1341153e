"""The state of the metadata quorum and the cluster as this node sees it, read on every scrape."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.controlling.quorum_driver import QuorumDriver
from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import (
    ACTIVE_CONTROLLER,
    BROKERS_ACTIVE,
    BROKERS_FENCED,
    ELECTIONS_FROM_ELR,
    METADATA_APPLIED_OFFSET,
    QUORUM_EPOCH,
    QUORUM_HIGH_WATERMARK,
    QUORUM_LEADER_ID,
    QUORUM_VOTERS,
)

_GAUGES = (
    ACTIVE_CONTROLLER,
    QUORUM_LEADER_ID,
    QUORUM_EPOCH,
    QUORUM_VOTERS,
    QUORUM_HIGH_WATERMARK,
    METADATA_APPLIED_OFFSET,
    BROKERS_ACTIVE,
    BROKERS_FENCED,
)


class QuorumMetrics:
    def __init__(self, registry: Registry, driver: QuorumDriver) -> None:
        self._driver = driver
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        driver = self._driver
        if not driver.has_started:
            return
        quorum, metadata = driver.quorum, driver.metadata
        brokers = metadata.image.brokers.values()
        fenced = sum(broker.fenced for broker in brokers)
        values = (
            int(driver.seat.active is not None),
            quorum.leader_id,
            quorum.epoch,
            len(quorum.voters),
            quorum.high_watermark,
            metadata.applied_offset,
            len(brokers) - fenced,
            fenced,
        )
        for metric, value in zip(_GAUGES, values, strict=True):
            yield metric.one(value)
        active = driver.seat.active
        yield ELECTIONS_FROM_ELR.one(0 if active is None else active.controller.elr_elections_total)
