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
from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import (
    LAST_STABLE_OFFSET_LAG_MAX_MESSAGES,
    LAST_STABLE_OFFSET_LAG_MESSAGES,
    PARTITIONS_OLDEST_TRANSACTION_SECONDS,
    TRANSACTIONS_ABORTED,
    TRANSACTIONS_COMMITTED,
    TRANSACTIONS_MARKERS_WAITING,
    TRANSACTIONS_OLDEST_SECONDS,
    TRANSACTIONS_OPEN,
    TRANSACTIONS_TIMED_OUT,
    TRANSACTIONS_VERIFICATION_FAILURES,
)
from penstock.observe.table import PARTITION_LAST_STABLE_OFFSET_LAG_MESSAGES as _LAG
from penstock.observe.table import PARTITION_OLDEST_TRANSACTION_SECONDS as _AGE
from penstock.partitions.leadership import Role

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.coordinating.transaction_coordinator import TransactionCoordinator
    from penstock.coordinating.transaction_verification import TransactionVerifier
    from penstock.partitions.partition import Partition
    from penstock.partitions.replica_manager import ReplicaManager

OPEN_STATES: Final = tuple(s.value for s in State if s not in IDLE and s not in PASSED_THROUGH)


class _Reading(NamedTuple):
    """One partition that this node leads."""

    topic: str
    partition: int
    lag: int
    age_s: float | None
    """None where no transaction is open."""


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
        by_state = [TRANSACTIONS_OPEN.sample(n, state) for state, n in counts.items()]
        yield Reading(TRANSACTIONS_OPEN, by_state)
        yield TRANSACTIONS_OLDEST_SECONDS.one(oldest_ms / 1000)
        yield TRANSACTIONS_MARKERS_WAITING.one(self._coordinator.markers.pending)
        ends = self._coordinator.counts
        yield TRANSACTIONS_COMMITTED.one(ends.committed)
        yield TRANSACTIONS_ABORTED.one(ends.aborted)
        yield TRANSACTIONS_TIMED_OUT.one(ends.timed_out)
        yield TRANSACTIONS_VERIFICATION_FAILURES.one(self._verifier.failures_total)

    def _collect_partitions(self) -> Iterator[Reading]:
        read = self._read()
        lags = [reading.lag for reading in read]
        ages = [reading.age_s for reading in read if reading.age_s is not None]
        yield LAST_STABLE_OFFSET_LAG_MESSAGES.one(sum(lags))
        yield LAST_STABLE_OFFSET_LAG_MAX_MESSAGES.one(max(lags, default=0))
        yield PARTITIONS_OLDEST_TRANSACTION_SECONDS.one(max(ages, default=0))
        if not self._per_partition:
            return
        yield Reading(_LAG, [])
        yield from _LAG.slices(_LAG.sample(r.lag, r.topic, str(r.partition)) for r in read)
        yield Reading(_AGE, [])
        yield from _AGE.slices(
            _AGE.sample(r.age_s, r.topic, str(r.partition)) for r in read if r.age_s is not None
        )

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
