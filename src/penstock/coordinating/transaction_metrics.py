"""The state of transactions on this node, counted at each scrape.

The coordinator's side shows what its shards know; the partitions' side, at their leaders, what
holds back readers with read_committed. Nothing is read from disk: a partition's oldest open
transaction is assumed to have begun when its producer last wrote before a scrape first saw it; the
error is at most the time between two scrapes while the node runs. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.coordinator.transaction.states import IDLE, PASSED_THROUGH, State
from penstock.observe.metrics import Kind, Reading, Registry, Sample, slices
from penstock.partitions.leadership import Role

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.coordinating.transaction_coordinator import TransactionCoordinator
    from penstock.coordinating.transaction_verification import TransactionVerifier
    from penstock.partitions.partition import Partition
    from penstock.partitions.replica_manager import ReplicaManager

OPEN_STATES: Final = tuple(s.value for s in State if s not in IDLE and s not in PASSED_THROUGH)

_LAG = "penstock_partition_last_stable_offset_lag_messages"
_LAG_DOC = "Messages between the last stable offset and the high watermark, by partition."
_AGE = "penstock_partition_oldest_transaction_seconds"
_AGE_DOC = "Age of the oldest open transaction, by partition that has one."


class _Reading(NamedTuple):
    """One partition that this node leads."""

    topic: str
    partition: int
    lag: int
    age_s: float | None
    """None where no transaction is open."""

    @property
    def labels(self) -> dict[str, str]:
        return {"topic": self.topic, "partition": str(self.partition)}


class TransactionMetrics:
    def __init__(
        self,
        registry: Registry,
        coordinator: TransactionCoordinator,
        verifier: TransactionVerifier,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        per_partition: bool,
    ) -> None:
        self._coordinator = coordinator
        self._verifier = verifier
        self._replicas = replicas
        self._clock = clock
        self._per_partition = per_partition
        # When the oldest transactions that the last scrape saw began, by partition and offset.
        self._begun_ms: dict[tuple[str, int, int], int] = {}
        registry.add_source(self._collect_coordinator)
        registry.add_source(self._collect_partitions)

    def _collect_coordinator(self) -> Iterator[Reading]:
        counts = dict.fromkeys(OPEN_STATES, 0)
        oldest_ms = 0
        for transaction in self._coordinator.open_transactions():
            counts[transaction.state] += 1
            oldest_ms = max(oldest_ms, transaction.age_ms)
        name = "penstock_transactions_open"
        by_state = [Sample(name, {"state": state}, n) for state, n in counts.items()]
        yield Reading(name, "Open transactions of this coordinator, by state.", "gauge", by_state)
        yield _one(
            "penstock_transactions_oldest_seconds",
            "Age of the oldest open transaction of this coordinator.",
            oldest_ms / 1000,
        )
        yield _one(
            "penstock_transactions_markers_waiting",
            "Decided transactions of which not all partitions have their marker yet.",
            self._coordinator.markers.pending,
        )
        ends = self._coordinator.counts
        for what, documentation, value in (
            ("committed", "Transactions that were committed.", ends.committed),
            ("aborted", "Transactions that were aborted.", ends.aborted),
            ("timed_out", "Those of them that timed out.", ends.timed_out),
            (
                "verification_failures",
                "Partitions that were written to and were not in their transaction.",
                self._verifier.failures_total,
            ),
        ):
            yield _one(f"penstock_transactions_{what}_total", documentation, value, "counter")

    def _collect_partitions(self) -> Iterator[Reading]:
        read = self._read()
        lags = [reading.lag for reading in read]
        ages = [reading.age_s for reading in read if reading.age_s is not None]
        yield _one(
            "penstock_last_stable_offset_lag_messages",
            "Messages between last stable offsets and high watermarks, over all partitions.",
            sum(lags),
        )
        yield _one(
            "penstock_last_stable_offset_lag_max_messages",
            "The same of the partition where it is largest.",
            max(lags, default=0),
        )
        yield _one(
            "penstock_partitions_oldest_transaction_seconds",
            "Age of the oldest transaction that is open in a partition.",
            max(ages, default=0),
        )
        if not self._per_partition:
            return
        yield Reading(_LAG, _LAG_DOC, "gauge", [])
        yield from slices(_LAG, _LAG_DOC, "gauge", (Sample(_LAG, r.labels, r.lag) for r in read))
        yield Reading(_AGE, _AGE_DOC, "gauge", [])
        old = (Sample(_AGE, r.labels, r.age_s) for r in read if r.age_s is not None)
        yield from slices(_AGE, _AGE_DOC, "gauge", old)

    def _read(self) -> list[_Reading]:
        now_ms = self._clock.now_ms()
        begun_before, self._begun_ms = self._begun_ms, {}
        return [
            _Reading(
                partition.topic,
                partition.index,
                partition.high_watermark - partition.last_stable_offset,
                self._age_s(partition, begun_before, now_ms),
            )
            for partition in self._replicas.open_partitions()
            if partition.role is Role.LEADER
        ]

    def _age_s(
        self, partition: Partition, begun_before: dict[tuple[str, int, int], int], now_ms: int
    ) -> float | None:
        producers = partition.log.producers
        first = next(iter(producers.ongoing.items()), None)
        if first is None:
            return None
        offset, producer_id = first
        key = (partition.topic, partition.index, offset)
        begun_ms = begun_before.get(key)
        if begun_ms is None:
            entry = producers.producers.get(producer_id)
            begun_ms = now_ms if entry is None else min(now_ms, entry.last_timestamp)
        self._begun_ms[key] = begun_ms
        return (now_ms - begun_ms) / 1000


def _one(name: str, documentation: str, value: float, kind: Kind = "gauge") -> Reading:
    return Reading(name, documentation, kind, [Sample(name, {}, value)])
