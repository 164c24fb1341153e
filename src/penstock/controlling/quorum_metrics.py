"""The state of the metadata quorum and the cluster as this node sees it, read on every scrape."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.controlling.quorum_driver import QuorumDriver
from penstock.observe.metrics import Reading, Registry, Sample

_ELR_ELECTIONS = "penstock_elections_from_elr_total"

_GAUGES = {
    "penstock_active_controller": "1 on the node that is the active controller, else 0.",
    "penstock_quorum_leader_id": "The quorum's leader as this node knows it; -1: none.",
    "penstock_quorum_epoch": "The quorum's epoch as this node knows it.",
    "penstock_quorum_voters": "Voters of the quorum as this node knows them.",
    "penstock_quorum_high_watermark": "Committed records of the metadata log.",
    "penstock_metadata_applied_offset": "Records of the metadata log that this node has applied.",
    "penstock_brokers_active": "Registered brokers that are not fenced.",
    "penstock_brokers_fenced": "Registered brokers that are fenced.",
}


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
        for (name, documentation), value in zip(_GAUGES.items(), values, strict=True):
            yield Reading(name, documentation, "gauge", [Sample(name, {}, value)])
        active = driver.seat.active
        elections = 0 if active is None else active.controller.elr_elections_total
        documentation = "Leaders elected from eligible leader replicas by this controller."
        sample = Sample(_ELR_ELECTIONS, {}, elections)
        yield Reading(_ELR_ELECTIONS, documentation, "counter", [sample])
