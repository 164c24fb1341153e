"""The table of panels: what the dashboard shows, row by row, in the order of the questions that
somebody has who looks at it.

Pure: expressions come from `expressions`, the form that Grafana wants from `grafana`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from penstock.cli.generate.expressions import Nodes
from penstock.observe import table

WINDOW: Final = "$__rate_interval"
"""Grafana's: long enough for a rate at the resolution that is shown."""
TOP: Final = 10
"""Of what there may be thousands of (topics, groups), the largest are shown."""
NODES: Final = Nodes('job=~"$job",instance=~"$instance"')

_BY_NODE: Final = "{{instance}}"


class Look(StrEnum):
    """How Grafana draws a panel; the names are its own."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


class Unit(StrEnum):
    """Grafana's names of units."""

    COUNT = "short"
    PER_SECOND = "ops"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    SECONDS = "s"
    PART = "percentunit"


class Query(NamedTuple):
    expression: str
    legend: str = _BY_NODE


class Panel(NamedTuple):
    title: str
    unit: Unit
    queries: tuple[Query, ...]
    look: Look = Look.LINES
    bad_from: float | None = None
    """A number is red from this value on, and from 0 to it green."""
    bad_below: float | None = None


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def _lines(title: str, unit: Unit, *queries: Query) -> Panel:
    return Panel(title, unit, queries)


def _number(title: str, expression: str, **bad: float) -> Panel:
    return Panel(title, Unit.COUNT, (Query(expression, ""),), Look.NUMBER, **bad)


def _top(expression: str) -> str:
    return f"topk({TOP}, {expression})"


HEALTH: Final = Row(
    "Cluster health",
    (
        _number("Nodes up", f"sum({NODES.up})", bad_below=1),
        _number("Active controllers", NODES.sum(table.ACTIVE_CONTROLLER), bad_below=1, bad_from=2),
        _number("Offline partitions", NODES.max(table.OFFLINE_PARTITIONS), bad_from=1),
        _number("Under min ISR", NODES.sum(table.UNDER_MIN_ISR_PARTITIONS), bad_from=1),
        _number("Under-replicated", NODES.sum(table.UNDER_REPLICATED_PARTITIONS), bad_from=1),
        _number("Stopped replicas", NODES.sum(table.STOPPED_PARTITIONS), bad_from=1),
        Panel("Nodes", Unit.COUNT, (Query(NODES.all(table.BUILD_INFO), ""),), Look.TABLE),
        _lines(
            "Brokers",
            Unit.COUNT,
            Query(NODES.max(table.BROKERS_ACTIVE), "active"),
            Query(NODES.max(table.BROKERS_FENCED), "fenced"),
        ),
        _lines("Leaders by node", Unit.COUNT, Query(NODES.all(table.LEADER_PARTITIONS))),
        _lines(
            "Changes of in-sync sets",
            Unit.PER_SECOND,
            Query(NODES.rate(table.ISR_SHRINKS, WINDOW), "shrinks"),
            Query(NODES.rate(table.ISR_EXPANDS, WINDOW), "expands"),
            Query(NODES.rate(table.ISR_CHANGE_FAILURES, WINDOW), "failures"),
        ),
        _lines("Furthest follower", Unit.COUNT, Query(NODES.all(table.REPLICA_LAG_MAX_MESSAGES))),
        _lines("Quorum epoch", Unit.COUNT, Query(NODES.all(table.QUORUM_EPOCH))),
        _lines(
            "Metadata records not applied yet",
            Unit.COUNT,
            Query(
                f"{NODES.max(table.QUORUM_HIGH_WATERMARK, 'job')} - on (job) group_right"
                f" {NODES.all(table.METADATA_APPLIED_OFFSET)}"
            ),
        ),
    ),
)
TRAFFIC: Final = Row(
    "Traffic",
    (
        _lines(
            "Messages in", Unit.PER_SECOND, Query(NODES.rate(table.MESSAGES_IN, WINDOW, "instance"))
        ),
        _lines(
            "Bytes from producers",
            Unit.BYTES_PER_SECOND,
            Query(NODES.rate(table.BYTES_IN, WINDOW, "instance")),
        ),
        _lines(
            "Bytes to consumers",
            Unit.BYTES_PER_SECOND,
            Query(NODES.rate(table.BYTES_OUT, WINDOW, "instance")),
        ),
        _lines(
            "Requests by API",
            Unit.PER_SECOND,
            Query(NODES.rate(table.REQUESTS, WINDOW, "api"), "{{api}}"),
        ),
        _lines(
            "Errors by API and code",
            Unit.PER_SECOND,
            Query(NODES.rate(table.REQUEST_ERRORS, WINDOW, "api", "error"), "{{api}} {{error}}"),
        ),
        _lines(
            "Failed requests",
            Unit.PER_SECOND,
            Query(NODES.rate(table.FAILED_PRODUCE_REQUESTS, WINDOW), "produce"),
            Query(NODES.rate(table.FAILED_FETCH_REQUESTS, WINDOW), "fetch"),
        ),
        _lines(
            "Replication",
            Unit.BYTES_PER_SECOND,
            Query(NODES.rate(table.REPLICATION_BYTES_IN, WINDOW, "instance"), "in {{instance}}"),
            Query(NODES.rate(table.REPLICATION_BYTES_OUT, WINDOW, "instance"), "out {{instance}}"),
        ),
        _lines(
            f"Bytes in, {TOP} largest topics",
            Unit.BYTES_PER_SECOND,
            Query(_top(NODES.rate(table.TOPIC_BYTES_IN, WINDOW, "topic")), "{{topic}}"),
        ),
        _lines(
            f"Bytes out, {TOP} largest topics",
            Unit.BYTES_PER_SECOND,
            Query(_top(NODES.rate(table.TOPIC_BYTES_OUT, WINDOW, "topic")), "{{topic}}"),
        ),
    ),
)


def _latency(api: str) -> Panel:
    total = table.REQUEST_TOTAL_SECONDS
    return _lines(
        f"{api}: percentiles",
        Unit.SECONDS,
        *(
            Query(NODES.quantile(part, total, WINDOW, api=api), f"p{part * 100:g}")
            for part in (0.5, 0.9, 0.99)
        ),
    )


def _phases(api: str) -> Panel:
    phases = {
        "queue": table.REQUEST_QUEUE_SECONDS,
        "local": table.REQUEST_LOCAL_SECONDS,
        "remote": table.REQUEST_REMOTE_SECONDS,
        "send": table.REQUEST_SEND_SECONDS,
    }
    return _lines(
        f"{api}: averages of the phases",
        Unit.SECONDS,
        *(Query(NODES.mean(metric, WINDOW, api=api), name) for name, metric in phases.items()),
    )


LATENCY: Final = Row(
    "Latency",
    (
        _latency("Produce"),
        _phases("Produce"),
        _lines(
            "Produce: p99 by node",
            Unit.SECONDS,
            Query(
                NODES.quantile(0.99, table.REQUEST_TOTAL_SECONDS, WINDOW, "instance", api="Produce")
            ),
        ),
        _latency("Fetch"),
        _phases("Fetch"),
        _lines(
            "Event loop lag: p99",
            Unit.SECONDS,
            Query(NODES.quantile(0.99, table.EVENT_LOOP_LAG_SECONDS, WINDOW, "instance")),
        ),
    ),
)
GROUPS: Final = Row(
    "Groups and transactions",
    (
        _lines(
            "Groups by state",
            Unit.COUNT,
            Query(NODES.sum(table.GROUPS, "protocol", "state"), "{{protocol}} {{state}}"),
        ),
        _lines(
            "Members",
            Unit.COUNT,
            Query(NODES.sum(table.GROUPS_MEMBERS, "protocol"), "{{protocol}}"),
        ),
        _lines(
            "Rebalances",
            Unit.PER_SECOND,
            Query(NODES.rate(table.GROUPS_REBALANCES, WINDOW, "protocol"), "{{protocol}}"),
        ),
        _lines(
            "Messages behind, all groups",
            Unit.COUNT,
            Query(NODES.sum(table.GROUPS_LAG_MESSAGES), "messages"),
        ),
        _lines(
            f"Messages behind, {TOP} groups",
            Unit.COUNT,
            Query(_top(NODES.sum(table.GROUP_LAG_MESSAGES, "group")), "{{group}}"),
        ),
        _lines(
            f"Time behind, {TOP} groups",
            Unit.SECONDS,
            Query(_top(NODES.max(table.GROUP_LAG_SECONDS, "group")), "{{group}}"),
        ),
        _lines(
            "Open transactions",
            Unit.COUNT,
            Query(NODES.sum(table.TRANSACTIONS_OPEN, "state"), "{{state}}"),
        ),
        _lines(
            "Ends of transactions",
            Unit.PER_SECOND,
            Query(NODES.rate(table.TRANSACTIONS_COMMITTED, WINDOW), "committed"),
            Query(NODES.rate(table.TRANSACTIONS_ABORTED, WINDOW), "aborted"),
            Query(NODES.rate(table.TRANSACTIONS_TIMED_OUT, WINDOW), "timed out"),
        ),
        _lines(
            "Oldest open transaction",
            Unit.SECONDS,
            Query(NODES.all(table.PARTITIONS_OLDEST_TRANSACTION_SECONDS)),
        ),
    ),
)
QUEUES: Final = Row(
    "Queues",
    (
        _lines(
            "Messages that workers have",
            Unit.COUNT,
            Query(NODES.sum(table.SHARE_RECORDS_IN_FLIGHT), "messages"),
        ),
        _lines(
            "Acknowledgements",
            Unit.PER_SECOND,
            Query(NODES.rate(table.SHARE_ACKNOWLEDGEMENTS, WINDOW, "type"), "{{type}}"),
        ),
        _lines(
            "Messages that workers lost",
            Unit.PER_SECOND,
            Query(NODES.rate(table.SHARE_LOCK_TIMEOUTS, WINDOW), "kept for too long"),
            Query(NODES.rate(table.SHARE_SESSIONS_LOST, WINDOW), "sessions that broke"),
        ),
        _lines(
            "Workers and what they share",
            Unit.COUNT,
            Query(NODES.sum(table.SHARE_SESSIONS), "sessions"),
            Query(NODES.sum(table.SHARE_PARTITIONS), "partitions of groups"),
        ),
        _lines(
            "Trouble with what is persisted",
            Unit.PER_SECOND,
            Query(NODES.rate(table.SHARE_FAILED_WRITES, WINDOW), "not written"),
            Query(NODES.rate(table.SHARE_FAILED_LOADS, WINDOW), "not read"),
        ),
        _lines(
            "Time to persist: p99",
            Unit.SECONDS,
            Query(NODES.quantile(0.99, table.SHARE_COORDINATOR_WRITE_SECONDS, WINDOW, "instance")),
        ),
    ),
)
STORAGE: Final = Row(
    "Storage",
    (
        _lines(
            "Free part of the data volume",
            Unit.PART,
            Query(
                f"{NODES.all(table.LOG_DIR_FREE_BYTES)} / {NODES.all(table.LOG_DIR_TOTAL_BYTES)}"
            ),
        ),
        _lines("Free bytes", Unit.BYTES, Query(NODES.all(table.LOG_DIR_FREE_BYTES))),
        _lines("Size of the logs", Unit.BYTES, Query(NODES.all(table.LOGS_SIZE_BYTES))),
        _lines("Partitions", Unit.COUNT, Query(NODES.all(table.PARTITIONS))),
        _lines(
            f"{TOP} largest topics",
            Unit.BYTES,
            Query(_top(NODES.sum(table.LOG_SIZE_BYTES, "topic")), "{{topic}}"),
        ),
        _lines(
            "Trouble with the disk",
            Unit.PER_SECOND,
            Query(
                NODES.rate(table.LOG_APPEND_FAILURES, WINDOW, "instance"), "refused {{instance}}"
            ),
            Query(NODES.rate(table.LOG_CORRUPT_READS, WINDOW, "instance"), "corrupt {{instance}}"),
        ),
        _lines(
            "Fetches that waited for the disk",
            Unit.PER_SECOND,
            Query(NODES.rate(table.COLD_READS, WINDOW, "instance")),
        ),
        _lines(
            "Rounds of group commit",
            Unit.PER_SECOND,
            Query(NODES.rate(table.FLUSH_ROUNDS, WINDOW, "instance")),
        ),
        _lines(
            "Compaction",
            Unit.BYTES_PER_SECOND,
            Query(NODES.rate(table.CLEANER_READ_BYTES, WINDOW, "instance"), "read {{instance}}"),
            Query(NODES.rate(table.CLEANER_WRITTEN_BYTES, WINDOW, "instance"), "kept {{instance}}"),
        ),
    ),
)
RESOURCES: Final = Row(
    "Resources",
    (
        _lines(
            "Processor",
            Unit.PART,
            Query(NODES.rate(table.PROCESS_CPU_SECONDS, WINDOW, "instance")),
        ),
        _lines("Memory", Unit.BYTES, Query(NODES.all(table.PROCESS_RESIDENT_MEMORY_BYTES))),
        _lines(
            "File descriptors in use",
            Unit.PART,
            Query(f"{NODES.all(table.PROCESS_OPEN_FDS)} / {NODES.all(table.PROCESS_MAX_FDS)}"),
        ),
        _lines("Connections", Unit.COUNT, Query(NODES.all(table.CONNECTIONS_OPEN))),
        _lines(
            "Connections opened and refused",
            Unit.PER_SECOND,
            Query(NODES.rate(table.CONNECTIONS_ACCEPTED, WINDOW), "opened"),
            Query(NODES.rate(table.CONNECTIONS_REFUSED, WINDOW, "reason"), "{{reason}}"),
        ),
        _lines(
            "Clients that a quota made to wait",
            Unit.PER_SECOND,
            Query(NODES.rate(table.QUOTA_THROTTLES, WINDOW, "quota"), "{{quota}}"),
        ),
        _lines("Memory of requests", Unit.BYTES, Query(NODES.all(table.REQUEST_MEMORY_BYTES))),
    ),
)
ROWS: Final = (HEALTH, TRAFFIC, LATENCY, GROUPS, QUEUES, STORAGE, RESOURCES)
