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
from penstock.base.build import COMPILED, kind_of_build
from penstock.base.ids import TopicPartition
from penstock.observe.metrics import Metric, Reading, Registry, Sample
from penstock.observe.table import (
    BUILD_INFO,
    CLEANER_DURATION_SECONDS,
    CLEANER_FAILURES,
    CLEANER_READ_BYTES,
    CLEANER_RUNS,
    CLEANER_WRITTEN_BYTES,
    LOG_END_OFFSET,
    LOG_SIZE_BYTES,
    LOG_START_OFFSET,
    LOGS_SIZE_BYTES,
    PARTITIONS,
    TOPIC_TRAFFIC,
    TRAFFIC,
)


class TopicCounters:
    """The plain numbers of one topic, named as in `TRAFFIC`; the hot path adds to them."""

    __slots__ = tuple(TRAFFIC)

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
    """Traffic over all topics, and by topic."""

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
            for field in TRAFFIC:
                setattr(self._gone, field, getattr(self._gone, field) + getattr(counters, field))

    def _collect(self) -> Iterator[Reading]:
        topics = list(self._topics.items())
        for field, metric in TRAFFIC.items():
            yield metric.one(getattr(self._gone, field) + sum(getattr(c, field) for _, c in topics))
        if not self._per_topic:
            return
        for field, metric in TOPIC_TRAFFIC.items():
            yield from metric.slices(_of_topics(metric, field, topics))


def _of_topics(
    metric: Metric, field: str, topics: list[tuple[str, TopicCounters]]
) -> Iterator[Sample]:
    for topic, counters in topics:
        yield metric.sample(getattr(counters, field), topic)


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
        (LOG_SIZE_BYTES, "size_bytes"),
        (LOG_START_OFFSET, "log_start_offset"),
        (LOG_END_OFFSET, "log_end_offset"),
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
        yield PARTITIONS.one(len(logs))
        yield LOGS_SIZE_BYTES.one(sum(log.size_bytes for _, log in logs))
        if not self._per_partition:
            return
        for metric, field in self._PER_PARTITION:
            yield from metric.slices(_of_partitions(metric, field, logs))


def _of_partitions(
    metric: Metric, field: str, logs: list[tuple[TopicPartition, LogSizes]]
) -> Iterator[Sample]:
    for partition, log in logs:
        yield metric.sample(getattr(log, field), partition.topic, str(partition.partition))


class CleanerMetrics:
    """What compaction has done."""

    __slots__ = ("bytes_read", "bytes_written", "duration", "failures", "runs")

    def __init__(self, registry: Registry) -> None:
        self.runs = registry.counter(CLEANER_RUNS)
        self.failures = registry.counter(CLEANER_FAILURES)
        self.bytes_read = registry.counter(CLEANER_READ_BYTES)
        self.bytes_written = registry.counter(CLEANER_WRITTEN_BYTES)
        self.duration = registry.histogram(CLEANER_DURATION_SECONDS)


def add_process_metrics(registry: Registry) -> None:
    """CPU, memory, descriptors and start time under Prometheus' usual names."""
    registry.add_source(_process_readings)


def add_build_info(registry: Registry, node_id: int, cluster_id: str) -> None:
    """What runs here, in which cluster; known once the node has found it."""
    compiled = str(kind_of_build() == COMPILED).lower()
    build = registry.gauges(BUILD_INFO).child(__version__, compiled, str(node_id), cluster_id)
    build.value = 1


def _process_readings() -> Iterable[Reading]:
    from penstock.observe.exposition import process_readings  # see Registry.render_parts

    return process_readings()
