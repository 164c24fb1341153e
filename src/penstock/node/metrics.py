"""The node's metrics, gathered: which numbers of which room are shown under which name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.base.ids import TopicPartition
from penstock.controlling.quorum_metrics import QuorumMetrics
from penstock.coordinating.group_lag import GroupLag
from penstock.coordinating.group_metrics import GroupMetrics
from penstock.coordinating.share_metrics import ShareCoordinatorMetrics
from penstock.coordinating.transaction_metrics import TransactionMetrics
from penstock.log.log import Log
from penstock.net.server import Server
from penstock.node.authentication import Authentication
from penstock.node.certificates import Certificates
from penstock.node.encryption import encryption_metrics
from penstock.observe.loop_lag import loop_lag_histogram
from penstock.observe.metrics import Reading, Registry
from penstock.observe.requests import RequestMetrics
from penstock.observe.standard import (
    CleanerMetrics,
    PartitionMetrics,
    TopicMetrics,
    add_process_metrics,
)
from penstock.observe.table import (
    AUDIT_EVENTS_DROPPED,
    AUDIT_EVENTS_WAITING,
    AUDIT_EVENTS_WRITTEN,
    AUDIT_REQUESTS_REFUSED,
    CERTIFICATE_NOT_AFTER_SECONDS,
    COLD_READS,
    CONNECTIONS_ACCEPTED,
    CONNECTIONS_CLOSED,
    CONNECTIONS_OPEN,
    CONNECTIONS_REFUSED,
    FETCH_SESSIONS,
    FETCH_SESSIONS_EVICTED,
    FLUSH_ROUNDS,
    LOG_APPEND_FAILURES,
    LOG_CORRUPT_READS,
    LOG_DIR_FREE_BYTES,
    LOG_DIR_TOTAL_BYTES,
    LOG_DIR_WRITABLE,
    LOGINS,
    QUOTA_BUCKETS,
    QUOTA_THROTTLED_SECONDS,
    QUOTA_THROTTLES,
    QUOTA_WAITING,
    REQUEST_MEMORY_BYTES,
    TLS_HANDSHAKES_FAILED,
)
from penstock.partitions.replication_metrics import ReplicationMetrics
from penstock.serving.audit_log import AuditLog
from penstock.serving.broker import Broker
from penstock.serving.quotas import QuotaService
from penstock.serving.share_metrics import ShareMetrics


class NodeMetrics:
    def __init__(self, api_names: Mapping[int, str], *, per_topic: bool, histograms: str) -> None:
        self.registry = Registry()
        self.requests = RequestMetrics(self.registry, api_names, histograms)
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
        GroupMetrics(registry, broker.groups)
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
        ShareMetrics(registry, broker.share)
        ShareCoordinatorMetrics(registry, broker.share_states)
        registry.add_source(lambda: _storage(broker))
        registry.add_source(broker.consumed.readings)
        registry.add_source(lambda: encryption_metrics(broker.logs))
        registry.add_source(lambda: _audit(broker.audit))
        registry.add_source(lambda: _quotas(broker.quotas))
        registry.add_source(broker.telemetry.readings)
        registry.add_source(lambda: _connections(broker, servers))

    def watch_doors(self, certificates: Certificates, authentication: Authentication) -> None:
        """How clients get in by the listeners, or do not."""
        self.registry.add_source(lambda: _doors(certificates, authentication))


def _open_logs(broker: Broker) -> Iterator[tuple[TopicPartition, Log]]:
    for log in broker.logs.opened():
        yield log.topic_partition, log


def _storage(broker: Broker) -> Iterator[Reading]:
    yield LOG_DIR_WRITABLE.one(int(all(log.failure is None for log in broker.logs.opened())))
    try:
        total, free = broker.logs.disk_space()
    except OSError:
        pass  # the volume is away: no number is better than a wrong one, and the rest is shown
    else:
        yield LOG_DIR_FREE_BYTES.one(free)
        yield LOG_DIR_TOTAL_BYTES.one(total)
    yield LOG_APPEND_FAILURES.one(broker.appends.failures)
    yield LOG_CORRUPT_READS.one(broker.reads.corrupt_reads)
    yield COLD_READS.one(broker.reads.cold_reads)
    yield FLUSH_ROUNDS.one(broker.flusher.rounds_total)


def _audit(audit: AuditLog | None) -> Iterator[Reading]:
    yield AUDIT_EVENTS_WRITTEN.one(0 if audit is None else audit.written)
    yield AUDIT_EVENTS_DROPPED.one(0 if audit is None else audit.dropped)
    yield AUDIT_EVENTS_WAITING.one(0 if audit is None else audit.waiting)
    yield AUDIT_REQUESTS_REFUSED.one(0 if audit is None else audit.refused)


def _quotas(quotas: QuotaService) -> Iterator[Reading]:
    kinds = list(quotas.counted())
    named = [(of.quota, *who, throttles) for of in kinds for who, throttles in of.throttles.items()]
    yield Reading(
        QUOTA_THROTTLES,
        [QUOTA_THROTTLES.sample(found.count, *labels) for *labels, found in named],
    )
    yield Reading(
        QUOTA_THROTTLED_SECONDS,
        [QUOTA_THROTTLED_SECONDS.sample(found.ms / 1000, *labels) for *labels, found in named],
    )
    yield Reading(QUOTA_WAITING, [QUOTA_WAITING.sample(of.waiting, of.quota) for of in kinds])
    yield Reading(QUOTA_BUCKETS, [QUOTA_BUCKETS.sample(of.buckets, of.quota) for of in kinds])


def _doors(certificates: Certificates, authentication: Authentication) -> Iterator[Reading]:
    failed = certificates.handshakes_failed().items()
    of_tls = [TLS_HANDSHAKES_FAILED.sample(count, name) for name, count in failed]
    yield Reading(TLS_HANDSHAKES_FAILED, of_tls)
    ends = certificates.not_after_s().items()
    of_listeners = [CERTIFICATE_NOT_AFTER_SECONDS.sample(at_s, name) for name, at_s in ends]
    yield Reading(CERTIFICATE_NOT_AFTER_SECONDS, of_listeners)
    logins = [
        LOGINS.sample(count, listener, outcome)
        for listener, gate in authentication.gates.items()
        for outcome, count in (("success", gate.successes), ("failure", gate.failures))
    ]
    yield Reading(LOGINS, logins)


def _connections(broker: Broker, servers: list[Server]) -> Iterator[Reading]:
    accepted = sum(server.accepted_total for server in servers)
    opened = sum(server.open_connections for server in servers)
    yield CONNECTIONS_OPEN.one(opened)
    yield CONNECTIONS_ACCEPTED.one(accepted)
    yield CONNECTIONS_CLOSED.one(accepted - opened)
    refused = [
        CONNECTIONS_REFUSED.sample(count, server.name, reason)
        for server in servers
        for reason, count in server.refused_total.items()
    ]
    yield Reading(CONNECTIONS_REFUSED, refused)
    yield REQUEST_MEMORY_BYTES.one(sum(server.memory.used_bytes for server in servers))
    yield FETCH_SESSIONS.one(len(broker.fetch_sessions))
    yield FETCH_SESSIONS_EVICTED.one(broker.fetch_sessions.evicted_total)
