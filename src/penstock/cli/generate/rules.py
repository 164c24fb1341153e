"""The table of alerts: what each watches, how long it may last, and what to do then.

An alert is about something that somebody has to do. `critical`: data cannot be used, or soon
cannot; `warning`: safety or speed is lost, or will be (the words of `penstock doctor`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.cli.generate.expressions import Nodes
from penstock.cli.thresholds import (
    CERTIFICATE_DAYS_CRITICAL,
    CERTIFICATE_DAYS_MIN,
    DISK_FREE_PART_CRITICAL,
    DISK_FREE_PART_MIN,
    FILES_PART_MAX,
)
from penstock.observe import table

PRODUCE_SECONDS_MAX: Final = 1.0
"""The 99th percentile of publishing, replicas included."""
LOOP_LAG_SECONDS_MAX: Final = 0.05
FAILED_PRODUCE_PART_MAX: Final = 0.01
HANGING_SECONDS: Final = 1800
"""Twice the longest transaction that a broker allows by default (transaction.max.timeout.ms)."""
RESTARTS_MAX: Final = 2
"""Within a quarter of an hour; an upgrade is one."""
FILLING_FREE_PART_MAX: Final = 0.5
"""A disk that is emptier is not told to be filling up, however quickly it does."""

_HERE: Final = "{{ $labels.instance }}"
_CLUSTER: Final = "{{ $labels.job }}"


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"


class Alert(NamedTuple):
    name: str
    severity: Severity
    expression: str
    lasting: str
    """How long the expression holds before the alert fires."""
    summary: str
    description: str
    """What it means, and what to do."""


def rules(job: str) -> list[Alert]:
    """All alerts, for the nodes of the jobs that match `job`."""
    nodes = Nodes(f"job=~{json.dumps(job)}")
    return [
        *_cluster(nodes),
        *_replicas(nodes),
        *_storage(nodes),
        *_service(nodes),
        *_security(nodes),
        *_queues(nodes),
    ]


def _cluster(nodes: Nodes) -> Iterator[Alert]:
    yield Alert(
        "PenstockNodeDown",
        Severity.CRITICAL,
        f"{nodes.up} == 0",
        "1m",
        f"Node {_HERE} is down",
        "Prometheus cannot scrape it. See whether its process runs, and what the end of its log"
        " says; start it. Others lead its replicated partitions meanwhile.",
    )
    yield Alert(
        "PenstockNoActiveController",
        Severity.CRITICAL,
        f"{nodes.sum(table.ACTIVE_CONTROLLER, 'job')} == 0",
        "1m",
        f"Cluster {_CLUSTER} has no active controller",
        "Nothing can be created, changed or failed over. Start the voters that are down until a"
        " majority of them runs; `penstock cluster status` names them. If they are lost for good,"
        " see `penstock cluster recover-quorum`.",
    )
    yield Alert(
        "PenstockSeveralActiveControllers",
        Severity.CRITICAL,
        f"{nodes.sum(table.ACTIVE_CONTROLLER, 'job')} > 1",
        "2m",
        f"Cluster {_CLUSTER} has {{{{ $value }}}} active controllers",
        "One of them is cut off from the majority, or this job scrapes more than one cluster: give"
        " each cluster a job of its own. Else look at the network between the voters.",
    )
    yield Alert(
        "PenstockQuorumLeaderUnknown",
        Severity.WARNING,
        f"{nodes.all(table.QUORUM_LEADER_ID)} < 0",
        "1m",
        f"Node {_HERE} knows no leader of the metadata quorum",
        "It does not follow changes to the cluster. See whether it reaches the voters over the"
        " network; when all nodes say so, start voters until a majority runs.",
    )
    yield Alert(
        "PenstockBrokersFenced",
        Severity.WARNING,
        f"{nodes.max(table.BROKERS_FENCED, 'job')} > 0",
        "5m",
        f"Cluster {_CLUSTER} has {{{{ $value }}}} fenced brokers",
        "They are registered and do not send heartbeats. `penstock cluster nodes` names them: start"
        " them, or take them out with `penstock cluster remove`.",
    )
    yield Alert(
        "PenstockNodeRestarts",
        Severity.WARNING,
        f"changes({nodes.all(table.PROCESS_START_TIME_SECONDS)}[15m]) > {RESTARTS_MAX}",
        "0m",
        f"Node {_HERE} was started {{{{ $value }}}} times in a quarter of an hour",
        "It ends and is started again. The last lines of its log before each start say why.",
    )


def _replicas(nodes: Nodes) -> Iterator[Alert]:
    yield Alert(
        "PenstockOfflinePartitions",
        Severity.CRITICAL,
        f"{nodes.all(table.OFFLINE_PARTITIONS)} > 0",
        "1m",
        f"{{{{ $value }}}} partitions with a replica on {_HERE} have no leader",
        "They can be neither written nor read. Start the nodes that have their in-sync replicas;"
        " `penstock doctor` names them. If those are lost for good, see"
        " `penstock cluster elect-leaders --unclean`.",
    )
    yield Alert(
        "PenstockUnderMinIsrPartitions",
        Severity.CRITICAL,
        f"{nodes.all(table.UNDER_MIN_ISR_PARTITIONS)} > 0",
        "1m",
        f"{{{{ $value }}}} partitions led by {_HERE} refuse writes with acks=all",
        "Fewer replicas are in sync than min.insync.replicas. Start the nodes that are away;"
        " `penstock doctor` names them.",
    )
    yield Alert(
        "PenstockUnderReplicatedPartitions",
        Severity.WARNING,
        f"{nodes.all(table.UNDER_REPLICATED_PARTITIONS)} > 0",
        "5m",
        f"{{{{ $value }}}} partitions led by {_HERE} have replicas that are not in sync",
        "A node is away, or too slow to follow. Start it, or see whether its disk, its network or"
        " its event loop is overloaded.",
    )
    yield Alert(
        "PenstockStoppedReplicas",
        Severity.CRITICAL,
        f"{nodes.all(table.STOPPED_PARTITIONS)} > 0",
        "0m",
        f"{{{{ $value }}}} replicas on {_HERE} have stopped for good",
        "They broke an invariant and serve nobody. The log of the node has the reason: keep it, and"
        " restart the node once other replicas are in sync.",
    )


def _storage(nodes: Nodes) -> Iterator[Alert]:
    free, total = nodes.all(table.LOG_DIR_FREE_BYTES), nodes.all(table.LOG_DIR_TOTAL_BYTES)
    room = (
        "Give the volume more room, move partitions away (`penstock cluster reassign`), or shorten"
        " the retention of the largest topics; a full disk refuses writes until there is room."
    )
    part = "{{ $value | humanizePercentage }}"
    yield Alert(
        "PenstockDiskAlmostFull",
        Severity.CRITICAL,
        f"{free} / {total} < {DISK_FREE_PART_CRITICAL}",
        "1m",
        f"{part} of the data volume of {_HERE} is free",
        f"A burst of messages fills it. {room}",
    )
    yield Alert(
        "PenstockDiskNearlyFull",
        Severity.WARNING,
        f"{free} / {total} < {DISK_FREE_PART_MIN}",
        "5m",
        f"{part} of the data volume of {_HERE} is free",
        room,
    )
    yield Alert(
        "PenstockDiskFillsUp",
        Severity.WARNING,
        f"predict_linear({free}[6h], 24 * 3600) < 0 and {free} / {total} < {FILLING_FREE_PART_MAX}",
        "30m",
        f"The data volume of {_HERE} is full within a day",
        f"So it is if it goes on as in the last six hours. {room}",
    )
    yield Alert(
        "PenstockDiskRefusesWrites",
        Severity.CRITICAL,
        f"{nodes.all(table.LOG_DIR_WRITABLE)} == 0",
        "0m",
        f"The disk of {_HERE} refuses writes",
        "Reads go on. The log of the node says what the disk answers: make room if it is full, and"
        " replace it if it is broken; the node goes on by itself where it can.",
    )
    yield Alert(
        "PenstockCorruptData",
        Severity.CRITICAL,
        f"{nodes.increase(table.LOG_CORRUPT_READS, '10m', 'job', 'instance')} > 0",
        "0m",
        f"{_HERE} found stored data to be corrupt",
        "It was not served. The log of the node names the file. Check the disk; where other"
        " replicas are in sync, move this one to another node with `penstock cluster reassign`.",
    )
    yield Alert(
        "PenstockCompactionFails",
        Severity.WARNING,
        f"{nodes.increase(table.CLEANER_FAILURES, '1h', 'job', 'instance')} > 0",
        "0m",
        f"Compaction fails on {_HERE}",
        "Compacted topics grow until it succeeds, which it tries again. The log of the node names"
        " the partition and the reason.",
    )


def _service(nodes: Nodes) -> Iterator[Alert]:
    latency = nodes.quantile(
        0.99, table.REQUEST_TOTAL_SECONDS, "5m", "job", "instance", api="Produce"
    )
    seconds = "{{ $value | humanizeDuration }}"
    yield Alert(
        "PenstockProduceIsSlow",
        Severity.WARNING,
        f"{latency} > {PRODUCE_SECONDS_MAX}",
        "10m",
        f"Publishing to {_HERE} takes {seconds} at the 99th percentile",
        "The phases of the requests say where: local is the node itself (look at the lag of its"
        " event loop), remote is its followers or its disk, send is the client or the network.",
    )
    failed = nodes.rate(table.FAILED_PRODUCE_REQUESTS, "5m", "job", "instance")
    asked = nodes.rate(table.PRODUCE_REQUESTS, "5m", "job", "instance")
    yield Alert(
        "PenstockProduceFails",
        Severity.WARNING,
        f"{failed} / {asked} > {FAILED_PRODUCE_PART_MAX}",
        "5m",
        f"{_HERE} refuses {{{{ $value | humanizePercentage }}}} of what is published",
        f"`{table.REQUEST_ERRORS.name}` has the error codes: of partitions without enough replicas,"
        " of a full disk, or of clients whose messages are too large or that are fenced.",
    )
    by = ("job", "instance", *table.CONNECTIONS_REFUSED.labels)
    yield Alert(
        "PenstockConnectionsRefused",
        Severity.WARNING,
        f"{nodes.rate(table.CONNECTIONS_REFUSED, '5m', *by)} > 0",
        "5m",
        f"{_HERE} refuses connections of listener {{{{ $labels.listener }}}}:"
        " {{ $labels.reason }}",
        "A limit of connections is reached, or clients break a rule of the protocol. The log of the"
        " node names their addresses; raise the limit, or mend the clients.",
    )
    lag = nodes.quantile(0.99, table.EVENT_LOOP_LAG_SECONDS, "5m", "job", "instance")
    yield Alert(
        "PenstockNodeOverloaded",
        Severity.WARNING,
        f"{lag} > {LOOP_LAG_SECONDS_MAX}",
        "5m",
        f"The event loop of {_HERE} is {seconds} late",
        "The node has more to do than one core does. Move leaderships or partitions to other nodes"
        " (`penstock cluster reassign`), or find the clients that ask for the most.",
    )
    yield Alert(
        "PenstockTransactionHangs",
        Severity.WARNING,
        f"{nodes.all(table.PARTITIONS_OLDEST_TRANSACTION_SECONDS)} > {HANGING_SECONDS}",
        "1m",
        f"A transaction on {_HERE} is open for {seconds}",
        "Readers with read_committed wait for its end. `penstock txn list --hanging` names it, and"
        " `penstock txn abort` ends it.",
    )
    descriptors = f"{nodes.all(table.PROCESS_OPEN_FDS)} / {nodes.all(table.PROCESS_MAX_FDS)}"
    yield Alert(
        "PenstockFilesRunOut",
        Severity.WARNING,
        f"{descriptors} > {FILES_PART_MAX}",
        "5m",
        f"{_HERE} uses {{{{ $value | humanizePercentage }}}} of its file descriptors",
        "Without any left it refuses connections. Raise the limit of open files of its process"
        " (LimitNOFILE, ulimit -n) and restart it.",
    )


def _security(nodes: Nodes) -> Iterator[Alert]:
    left = f"{nodes.all(table.CERTIFICATE_NOT_AFTER_SECONDS)} - time()"
    for name, severity, days in (
        ("PenstockCertificateEnds", Severity.CRITICAL, CERTIFICATE_DAYS_CRITICAL),
        ("PenstockCertificateEndsSoon", Severity.WARNING, CERTIFICATE_DAYS_MIN),
    ):
        yield Alert(
            name,
            severity,
            f"{left} < {days} * 24 * 3600",
            "5m",
            f"The certificate of listener {{{{ $labels.listener }}}} of {_HERE} ends in less than"
            f" {days} days",
            "After that no client gets in. Write a new one over the file that ssl.keystore.location"
            " names; the node takes it without a restart.",
        )
    yield Alert(
        "PenstockAuditEventsLost",
        Severity.CRITICAL,
        f"{nodes.increase(table.AUDIT_EVENTS_DROPPED, '10m', 'job', 'instance')} > 0",
        "0m",
        f"{_HERE} has lost events of the audit log",
        "They could not be written to __audit in time. See whether its partitions have leaders and"
        " enough replicas in sync; penstock.audit.overflow=refuse lets nothing go unseen.",
    )


def _queues(nodes: Nodes) -> Iterator[Alert]:
    yield Alert(
        "PenstockDeadLettersWait",
        Severity.WARNING,
        f"{nodes.all(table.SHARE_DEAD_LETTERS_WAITING)} > 0",
        "10m",
        f"Dead letters of share group {{{{ $labels.group }}}} wait on {_HERE}",
        f"{table.SHARE_DEAD_LETTER_FAILURES.name} says why they cannot be written. They are tried"
        " again; if too many wait, the group gets nothing new of their partitions.",
    )
