"""The metrics that every node has, grouped by the room that owns the numbers.

Names follow Kafka's meanings (BytesInPerSec, PartitionCount, LogEndOffset, ...), as Prometheus
counters and gauges: a rate is the reader's to take. Series per topic and per partition can be
switched off, since their number grows with the cluster; the totals over all topics are always there
and never shrink when a topic is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from penstock import __version__
from penstock.base.build import kind_of_build
from penstock.base.ids import TopicPartition
from penstock.observe.metrics import Reading, Registry, Sample, slices

_TOPIC_COUNTERS = {
    "messages_in": "Messages appended by producers",
    "bytes_in": "Bytes of record batches appended by producers",
    "bytes_out": "Bytes of record batches sent to consumers",
    "replication_bytes_in": "Bytes of record batches copied from leaders",
    "replication_bytes_out": "Bytes of record batches sent to followers",
    "bytes_rejected": "Bytes of record batches refused",
    "produce_requests": "Produce requests, one for each partition they name",
    "fetch_requests": "Fetch requests, one for each partition they name",
    "failed_produce_requests": "Produce requests answered with an error, one for each partition",
    "failed_fetch_requests": "Fetch requests answered with an error, one for each partition",
}


class TopicCounters:
    """The plain numbers of one topic, named as in `_TOPIC_COUNTERS`; the hot path adds to them."""

    __slots__ = tuple(_TOPIC_COUNTERS)

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0


class TopicMetrics:
    """Traffic over all topics (`penstock_bytes_in_total`) and by topic (`penstock_topic_...`)."""

    def __init__(self, registry: Registry, *, per_topic: bool) -> None:
        self._per_topic = per_topic
        self._gone = TopicCounters()
        self._topics: dict[str, TopicCounters] = {}
        registry.add_source(self._collect)

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic; all topics share one object when series per topic are off."""
        if not self._per_topic:
            return self._gone
        counters = self._topics.get(name)
        if counters is None:
            counters = self._topics[name] = TopicCounters()
        return counters

    def remove(self, name: str) -> None:
        """Drop a deleted topic's series; what it counted stays in the totals."""
        counters = self._topics.pop(name, None)
        if counters is not None:
            for field in _TOPIC_COUNTERS:
                setattr(self._gone, field, getattr(self._gone, field) + getattr(counters, field))

    def _collect(self) -> Iterator[Reading]:
        topics = list(self._topics.items())
        for field, what in _TOPIC_COUNTERS.items():
            total = getattr(self._gone, field) + sum(getattr(c, field) for _, c in topics)
            name = f"penstock_{field}_total"
            sample = Sample(name, {}, total)
            yield Reading(name, f"{what}, over all topics.", "counter", [sample])
        if not self._per_topic:
            return
        for field, what in _TOPIC_COUNTERS.items():
            name = f"penstock_topic_{field}_total"
            samples = (Sample(name, {"topic": t}, getattr(c, field)) for t, c in topics)
            yield from slices(name, f"{what}, by topic.", "counter", samples)


class LogSizes(Protocol):
    """What a scrape reads of a log."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class PartitionMetrics:
    """Sizes and offsets of the logs on this node, read on every scrape."""

    _PER_PARTITION = (
        ("penstock_log_size_bytes", "Size of the log on disk, by partition.", "size_bytes"),
        ("penstock_log_start_offset", "First offset of the log, by partition.", "log_start_offset"),
        ("penstock_log_end_offset", "Next offset of the log, by partition.", "log_end_offset"),
    )

    def __init__(
        self,
        registry: Registry,
        logs: Callable[[], Iterable[tuple[TopicPartition, LogSizes]]],
        *,
        per_partition: bool,
    ) -> None:
        """`logs` is asked on every scrape, as `lambda: logs_by_partition.items()`."""
        self._logs = logs
        self._per_partition = per_partition
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        logs = list(self._logs())
        for name, documentation, value in (
            ("penstock_partitions", "Partitions on this node.", len(logs)),
            (
                "penstock_logs_size_bytes",
                "Size of all logs.",
                sum(log.size_bytes for _, log in logs),
            ),
        ):
            yield Reading(name, documentation, "gauge", [Sample(name, {}, value)])
        if not self._per_partition:
            return
        for name, documentation, field in self._PER_PARTITION:
            samples = (
                Sample(name, {"topic": p.topic, "partition": str(p.partition)}, getattr(log, field))
                for p, log in logs
            )
            yield from slices(name, documentation, "gauge", samples)


class CleanerMetrics:
    """What compaction has done."""

    __slots__ = ("bytes_read", "bytes_written", "duration", "failures", "runs")

    def __init__(self, registry: Registry) -> None:
        self.runs = registry.counter("penstock_cleaner_runs_total", "Compactions that finished.")
        self.failures = registry.counter(
            "penstock_cleaner_failures_total", "Compactions that failed and will be tried again."
        )
        self.bytes_read = registry.counter(
            "penstock_cleaner_read_bytes_total", "Bytes of segments that compactions read."
        )
        self.bytes_written = registry.counter(
            "penstock_cleaner_written_bytes_total", "Bytes of segments that compactions kept."
        )
        self.duration = registry.histogram(
            "penstock_cleaner_duration_seconds", "Time that compactions took."
        )


def add_process_metrics(registry: Registry) -> None:
    """CPU, memory, descriptors and start time under Prometheus' usual names."""
    registry.add_source(_process_readings)


def add_build_info(registry: Registry, node_id: int, cluster_id: str) -> None:
    """What runs here, in which cluster; known once the node has found it."""
    build = registry.gauges(
        "penstock_build_info",
        "Always 1; version, build, node and cluster are labels.",
        ("version", "build", "node", "cluster"),
    )
    build.child(__version__, kind_of_build(), str(node_id), cluster_id).value = 1


def _process_readings() -> Iterable[Reading]:
    from penstock.observe.exposition import process_readings  # see Registry.render_parts

    return process_readings()
