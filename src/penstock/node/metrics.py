"""The node's metrics, gathered: which numbers of which room are shown under which name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.base.ids import TopicPartition
from penstock.controlling.quorum_metrics import QuorumMetrics
from penstock.coordinating.group_lag import GroupLag
from penstock.coordinating.transaction_metrics import TransactionMetrics
from penstock.log.log import Log
from penstock.net.server import Server
from penstock.observe.loop_lag import loop_lag_histogram
from penstock.observe.metrics import Reading, Registry, Sample
from penstock.observe.requests import RequestMetrics
from penstock.observe.standard import (
    CleanerMetrics,
    PartitionMetrics,
    TopicMetrics,
    add_process_metrics,
)
from penstock.partitions.replication_metrics import ReplicationMetrics
from penstock.serving.broker import Broker


class NodeMetrics:
    def __init__(self, api_names: Mapping[int, str], *, per_topic: bool) -> None:
        self.registry = Registry()
        self.requests = RequestMetrics(self.registry, api_names)
        self.topics = TopicMetrics(self.registry, per_topic=per_topic)
        self.cleaner = CleanerMetrics(self.registry)
        self.loop_lag = loop_lag_histogram(self.registry)
        add_process_metrics(self.registry)

    def watch(self, broker: Broker, servers: list[Server]) -> None:
        """The numbers of the broker and its listeners."""
        registry = self.registry
        PartitionMetrics(
            registry,
            lambda: _open_logs(broker),
            per_partition=broker.config.penstock_metrics_per_partition,
        )
        QuorumMetrics(registry, broker.quorum)
        ReplicationMetrics(registry, broker.replicas, lambda: broker.replication)
        GroupLag(
            registry,
            broker.groups,
            broker.replicas,
            broker.clock,
            per_group=broker.config.penstock_metrics_per_group,
        )
        TransactionMetrics(
            registry,
            broker.transactions,
            broker.verifier,
            broker.replicas,
            broker.clock,
            per_partition=broker.config.penstock_metrics_per_partition,
        )
        registry.gauge(
            "penstock_log_dir_writable",
            "1 while every log takes writes, 0 while the disk refuses some.",
            lambda: int(all(log.failure is None for log in broker.logs.opened())),
        )
        registry.add_source(lambda: _counters(broker, servers))
        registry.gauge(
            "penstock_fetch_sessions",
            "Incremental fetch sessions.",
            lambda: len(broker.fetch_sessions),
        )
        registry.gauge(
            "penstock_connections_open",
            "Connections open now.",
            lambda: sum(len(server.connections) for server in servers),
        )
        registry.gauge(
            "penstock_request_memory_bytes",
            "Bytes of requests that are arriving or waiting.",
            lambda: sum(server.memory.used_bytes for server in servers),
        )


def _open_logs(broker: Broker) -> Iterator[tuple[TopicPartition, Log]]:
    for log in broker.logs.opened():
        yield log.topic_partition, log


def _counters(broker: Broker, servers: list[Server]) -> Iterator[Reading]:
    for name, documentation, value in (
        ("log_append_failures", "Appends that the disk refused.", broker.appends.failures),
        (
            "log_corrupt_reads",
            "Reads that found stored bytes to be corrupt.",
            broker.reads.corrupt_reads,
        ),
        ("cold_reads", "Fetches that had to wait for the disk.", broker.reads.cold_reads),
        ("flush_rounds", "Rounds of group commit.", broker.flusher.rounds_total),
        ("fetch_sessions_evicted", "Fetch sessions evicted.", broker.fetch_sessions.evicted_total),
        (
            "connections_closed",
            "Accepted connections that ended.",
            sum(server.accepted_total - len(server.connections) for server in servers),
        ),
        (
            "connections_accepted",
            "Connections that clients opened.",
            sum(server.accepted_total for server in servers),
        ),
    ):
        full = f"penstock_{name}_total"
        yield Reading(full, documentation, "counter", [Sample(full, {}, value)])
    name = "penstock_connections_refused_total"
    refused = [
        Sample(name, {"listener": server.name, "reason": reason}, count)
        for server in servers
        for reason, count in server.refused_total.items()
    ]
    yield Reading(name, "Connections closed by a limit or a rule.", "counter", refused)
