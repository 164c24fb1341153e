"""The table of metrics: the name, kind, meaning and labels of every one that a node shows.

Rooms take a metric from here to show its numbers; `penstock generate` takes it from here for the
dashboard and the alerts. So a name stands in one place, and what is renamed or removed here cannot
be left behind there. docs/observability.md has a row for each; a test holds the page, the table and
a running node to each other.

Invariant: a row of the table is made here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.observe.metrics import Kind, Metric

METRICS: Final[dict[str, Metric]] = {}
"""Every row, by name."""


def _row(kind: Kind, name: str, documentation: str, labels: tuple[str, ...]) -> Metric:
    metric = METRICS[name] = Metric(name, kind, documentation, labels)
    return metric


def _counter(name: str, documentation: str, *labels: str) -> Metric:
    return _row("counter", name, documentation, labels)


def _gauge(name: str, documentation: str, *labels: str) -> Metric:
    return _row("gauge", name, documentation, labels)


def _histogram(name: str, documentation: str, *labels: str) -> Metric:
    return _row("histogram", name, documentation, labels)


# -- encryption at rest -------------------------------------------------------------------------

ENCRYPTED_SEGMENTS: Final = _gauge(
    "penstock_encrypted_segments",
    "Encrypted segments of open logs, by the key and its version that wrap their data keys.",
    "key_id",
    "version",
)
ENCRYPTION_KEY_FAILURES: Final = _counter(
    "penstock_encryption_key_failures_total",
    "Data keys that could not be had from the provider of keys.",
)
ENCRYPTION_KEYS_SPARE: Final = _gauge(
    "penstock_encryption_keys_spare", "Data keys that were made ahead for new segments."
)

# -- requests ----------------------------------------------------------------------------------

REQUESTS: Final = _counter("penstock_requests_total", "Requests answered, by API.", "api")
REQUEST_ERRORS: Final = _counter(
    "penstock_request_errors_total",
    "Errors that answers carried, by API and error code.",
    "api",
    "error",
)
REQUEST_QUEUE_SECONDS: Final = _histogram(
    "penstock_request_queue_seconds", "Time that requests spent waiting to be handled.", "api"
)
REQUEST_LOCAL_SECONDS: Final = _histogram(
    "penstock_request_local_seconds",
    "Time that requests spent being worked on by this node.",
    "api",
)
REQUEST_REMOTE_SECONDS: Final = _histogram(
    "penstock_request_remote_seconds",
    "Time that requests spent waiting for data, replicas or the disk.",
    "api",
)
REQUEST_SEND_SECONDS: Final = _histogram(
    "penstock_request_send_seconds",
    "Time that requests spent with their answer waiting for the socket.",
    "api",
)
REQUEST_TOTAL_SECONDS: Final = _histogram(
    "penstock_request_total_seconds",
    "Time that requests spent in this node, from last byte in to last out.",
    "api",
)

# -- traffic -----------------------------------------------------------------------------------

_TRAFFIC: Final = {
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
TRAFFIC: Final[Mapping[str, Metric]] = {
    field: _counter(f"penstock_{field}_total", f"{what}, over all topics.")
    for field, what in _TRAFFIC.items()
}
"""Over all topics, by the name of the field that counts it."""
TOPIC_TRAFFIC: Final[Mapping[str, Metric]] = {
    field: _counter(f"penstock_topic_{field}_total", f"{what}, by topic.", "topic")
    for field, what in _TRAFFIC.items()
}
MESSAGES_IN: Final = TRAFFIC["messages_in"]
BYTES_IN: Final = TRAFFIC["bytes_in"]
BYTES_OUT: Final = TRAFFIC["bytes_out"]
REPLICATION_BYTES_IN: Final = TRAFFIC["replication_bytes_in"]
REPLICATION_BYTES_OUT: Final = TRAFFIC["replication_bytes_out"]
PRODUCE_REQUESTS: Final = TRAFFIC["produce_requests"]
FAILED_PRODUCE_REQUESTS: Final = TRAFFIC["failed_produce_requests"]
FAILED_FETCH_REQUESTS: Final = TRAFFIC["failed_fetch_requests"]
TOPIC_BYTES_IN: Final = TOPIC_TRAFFIC["bytes_in"]
TOPIC_BYTES_OUT: Final = TOPIC_TRAFFIC["bytes_out"]

# -- the audit log -----------------------------------------------------------------------------

AUDIT_EVENTS_WRITTEN: Final = _counter(
    "penstock_audit_events_written_total", "Events written to the audit log."
)
AUDIT_EVENTS_DROPPED: Final = _counter(
    "penstock_audit_events_dropped_total", "Events that are lost: they could not be written."
)
AUDIT_EVENTS_WAITING: Final = _gauge(
    "penstock_audit_events_waiting", "Events that wait to be written to the audit log."
)
AUDIT_REQUESTS_REFUSED: Final = _counter(
    "penstock_audit_requests_refused_total",
    "Requests and logins refused because they could not be audited.",
)

# -- replication -------------------------------------------------------------------------------

LEADER_PARTITIONS: Final = _gauge(
    "penstock_leader_partitions", "Open partitions that this node leads."
)
UNDER_REPLICATED_PARTITIONS: Final = _gauge(
    "penstock_under_replicated_partitions",
    "Partitions led here of which not all replicas are in sync.",
)
UNDER_MIN_ISR_PARTITIONS: Final = _gauge(
    "penstock_under_min_isr_partitions",
    "Partitions led here with fewer replicas in sync than min.insync.replicas.",
)
OFFLINE_PARTITIONS: Final = _gauge(
    "penstock_offline_partitions", "Partitions with a replica here that have no leader."
)
STOPPED_PARTITIONS: Final = _gauge(
    "penstock_stopped_partitions",
    "Replicas on this node that broke an invariant and are not served until it is restarted.",
)
REPLICA_LAG_MAX_MESSAGES: Final = _gauge(
    "penstock_replica_lag_max_messages",
    "Messages that the follower on this node which is furthest behind has still to fetch.",
)
ISR_SHRINKS: Final = _counter(
    "penstock_isr_shrinks_total", "Times that replicas left an in-sync set of this node."
)
ISR_EXPANDS: Final = _counter(
    "penstock_isr_expands_total", "Times that a replica joined an in-sync set of this node."
)
ISR_CHANGE_FAILURES: Final = _counter(
    "penstock_isr_change_failures_total", "Changes that the controller did not accept."
)

# -- the metadata quorum -----------------------------------------------------------------------

ACTIVE_CONTROLLER: Final = _gauge(
    "penstock_active_controller", "1 on the node that is the active controller, else 0."
)
QUORUM_LEADER_ID: Final = _gauge(
    "penstock_quorum_leader_id", "The quorum's leader as this node knows it; -1: none."
)
QUORUM_EPOCH: Final = _gauge("penstock_quorum_epoch", "The quorum's epoch as this node knows it.")
QUORUM_VOTERS: Final = _gauge(
    "penstock_quorum_voters", "Voters of the quorum as this node knows them."
)
QUORUM_HIGH_WATERMARK: Final = _gauge(
    "penstock_quorum_high_watermark", "Committed records of the metadata log."
)
METADATA_APPLIED_OFFSET: Final = _gauge(
    "penstock_metadata_applied_offset", "Records of the metadata log that this node has applied."
)
BROKERS_ACTIVE: Final = _gauge("penstock_brokers_active", "Registered brokers that are not fenced.")
BROKERS_FENCED: Final = _gauge("penstock_brokers_fenced", "Registered brokers that are fenced.")
ELECTIONS_FROM_ELR: Final = _counter(
    "penstock_elections_from_elr_total",
    "Leaders elected from eligible leader replicas by this controller.",
)

# -- consumer groups ---------------------------------------------------------------------------

GROUPS: Final = _gauge(
    "penstock_groups",
    "Groups that this node coordinates, by protocol and state.",
    "protocol",
    "state",
)
GROUPS_MEMBERS: Final = _gauge(
    "penstock_groups_members", "Members of these groups, by the group's protocol.", "protocol"
)
GROUPS_REBALANCES: Final = _counter(
    "penstock_groups_rebalances_total",
    "Generations with an assignment (classic) and group epochs (others) that began.",
    "protocol",
)
GROUPS_LAG_MESSAGES: Final = _gauge(
    "penstock_groups_lag_messages", "Messages that groups are behind, over all groups."
)
GROUP_LAG_MESSAGES: Final = _gauge(
    "penstock_group_lag_messages",
    "Messages that a group is behind, by group, topic and partition.",
    "group",
    "topic",
    "partition",
)
GROUP_LAG_SECONDS: Final = _gauge(
    "penstock_group_lag_seconds",
    "Age of the first message that a group has not committed, by the same.",
    "group",
    "topic",
    "partition",
)

# -- transactions ------------------------------------------------------------------------------

TRANSACTIONS_OPEN: Final = _gauge(
    "penstock_transactions_open", "Open transactions of this coordinator, by state.", "state"
)
TRANSACTIONS_OLDEST_SECONDS: Final = _gauge(
    "penstock_transactions_oldest_seconds",
    "Age of the oldest open transaction of this coordinator.",
)
TRANSACTIONS_MARKERS_WAITING: Final = _gauge(
    "penstock_transactions_markers_waiting",
    "Decided transactions of which not all partitions have their marker yet.",
)
TRANSACTIONS_COMMITTED: Final = _counter(
    "penstock_transactions_committed_total", "Transactions that were committed."
)
TRANSACTIONS_ABORTED: Final = _counter(
    "penstock_transactions_aborted_total", "Transactions that were aborted."
)
TRANSACTIONS_TIMED_OUT: Final = _counter(
    "penstock_transactions_timed_out_total", "Those of them that timed out."
)
TRANSACTIONS_VERIFICATION_FAILURES: Final = _counter(
    "penstock_transactions_verification_failures_total",
    "Partitions that were written to and were not in their transaction.",
)
LAST_STABLE_OFFSET_LAG_MESSAGES: Final = _gauge(
    "penstock_last_stable_offset_lag_messages",
    "Messages between last stable offsets and high watermarks, over all partitions.",
)
LAST_STABLE_OFFSET_LAG_MAX_MESSAGES: Final = _gauge(
    "penstock_last_stable_offset_lag_max_messages", "The same of the partition where it is largest."
)
PARTITIONS_OLDEST_TRANSACTION_SECONDS: Final = _gauge(
    "penstock_partitions_oldest_transaction_seconds",
    "Age of the oldest transaction that is open in a partition.",
)
PARTITION_LAST_STABLE_OFFSET_LAG_MESSAGES: Final = _gauge(
    "penstock_partition_last_stable_offset_lag_messages",
    "Messages between the last stable offset and the high watermark, by partition.",
    "topic",
    "partition",
)
PARTITION_OLDEST_TRANSACTION_SECONDS: Final = _gauge(
    "penstock_partition_oldest_transaction_seconds",
    "Age of the oldest open transaction, by partition that has one.",
    "topic",
    "partition",
)

# -- share groups ------------------------------------------------------------------------------

SHARE_COORDINATOR_STATES: Final = _gauge(
    "penstock_share_coordinator_states", "Share-partitions whose state this node keeps."
)
SHARE_COORDINATOR_WRITES: Final = _counter(
    "penstock_share_coordinator_writes_total",
    "Changes of share-partitions that were written, those of leaders' epochs among them.",
)
SHARE_COORDINATOR_WRITE_SECONDS: Final = _histogram(
    "penstock_share_coordinator_write_seconds",
    "Time until a request to write changes of share-partitions was committed.",
)
SHARE_COORDINATOR_PRUNED_OFFSET: Final = _gauge(
    "penstock_share_coordinator_pruned_offset",
    "Up to which offset a partition of __share_group_state was pruned last.",
    "partition",
)

# -- logs and the disk -------------------------------------------------------------------------

PARTITIONS: Final = _gauge("penstock_partitions", "Partitions on this node.")
LOGS_SIZE_BYTES: Final = _gauge("penstock_logs_size_bytes", "Size of all logs.")
LOG_SIZE_BYTES: Final = _gauge(
    "penstock_log_size_bytes", "Size of the log on disk, by partition.", "topic", "partition"
)
LOG_START_OFFSET: Final = _gauge(
    "penstock_log_start_offset", "First offset of the log, by partition.", "topic", "partition"
)
LOG_END_OFFSET: Final = _gauge(
    "penstock_log_end_offset", "Next offset of the log, by partition.", "topic", "partition"
)
LOG_DIR_WRITABLE: Final = _gauge(
    "penstock_log_dir_writable", "1 while every log takes writes, 0 while the disk refuses some."
)
LOG_DIR_FREE_BYTES: Final = _gauge(
    "penstock_log_dir_free_bytes", "Bytes that can still be written to the volume of the data."
)
LOG_DIR_TOTAL_BYTES: Final = _gauge(
    "penstock_log_dir_total_bytes", "Size of the volume of the data."
)
LOG_APPEND_FAILURES: Final = _counter(
    "penstock_log_append_failures_total", "Appends that the disk refused."
)
LOG_CORRUPT_READS: Final = _counter(
    "penstock_log_corrupt_reads_total", "Reads that found stored bytes to be corrupt."
)
RETENTION_CONSUMED_BYTES: Final = _counter(
    "penstock_retention_consumed_bytes_total",
    "Bytes that were deleted since all groups had consumed them.",
)
RETENTION_CONSUMED_HELD_MESSAGES: Final = _gauge(
    "penstock_retention_consumed_held_messages",
    "Messages that the slowest group of a partition keeps from being deleted as consumed.",
    "topic",
    "partition",
    "group",
)
RETENTION_CONSUMED_BLOCKED_SECONDS: Final = _gauge(
    "penstock_retention_consumed_blocked_seconds",
    "Since when it has not been known how far all groups of a topic are.",
    "topic",
)
COLD_READS: Final = _counter("penstock_cold_reads_total", "Fetches that had to wait for the disk.")
FLUSH_ROUNDS: Final = _counter("penstock_flush_rounds_total", "Rounds of group commit.")
CLEANER_RUNS: Final = _counter("penstock_cleaner_runs_total", "Compactions that finished.")
CLEANER_FAILURES: Final = _counter(
    "penstock_cleaner_failures_total", "Compactions that failed and will be tried again."
)
CLEANER_READ_BYTES: Final = _counter(
    "penstock_cleaner_read_bytes_total", "Bytes of segments that compactions read."
)
CLEANER_WRITTEN_BYTES: Final = _counter(
    "penstock_cleaner_written_bytes_total", "Bytes of segments that compactions kept."
)
CLEANER_DURATION_SECONDS: Final = _histogram(
    "penstock_cleaner_duration_seconds", "Time that compactions took."
)

# -- connections -------------------------------------------------------------------------------

CONNECTIONS_OPEN: Final = _gauge("penstock_connections_open", "Connections open now.")
CONNECTIONS_ACCEPTED: Final = _counter(
    "penstock_connections_accepted_total", "Connections that clients opened."
)
CONNECTIONS_CLOSED: Final = _counter(
    "penstock_connections_closed_total", "Accepted connections that ended."
)
CONNECTIONS_REFUSED: Final = _counter(
    "penstock_connections_refused_total",
    "Connections closed by a limit or a rule.",
    "listener",
    "reason",
)
TLS_HANDSHAKES_FAILED: Final = _counter(
    "penstock_tls_handshakes_failed_total",
    "Connections that ended before they were encrypted.",
    "listener",
)
CERTIFICATE_NOT_AFTER_SECONDS: Final = _gauge(
    "penstock_certificate_not_after_seconds",
    "When the certificate of a listener ends, in seconds since 1970.",
    "listener",
)
LOGINS: Final = _counter(
    "penstock_logins_total",
    "Logins by SASL, by how they ended: success or failure.",
    "listener",
    "outcome",
)
QUOTA_THROTTLES: Final = _counter(
    "penstock_quota_throttles_total",
    "How often a client had to wait for a quota, by its kind, user, and the client id or address "
    "that the quota names.",
    "quota",
    "user",
    "client_id",
)
QUOTA_THROTTLED_SECONDS: Final = _counter(
    "penstock_quota_throttled_seconds_total",
    "How long clients had to wait for quotas, likewise.",
    "quota",
    "user",
    "client_id",
)
QUOTA_WAITING: Final = _gauge(
    "penstock_quota_waiting",
    "Users, clients or addresses that a quota keeps waiting at this moment.",
    "quota",
)
QUOTA_BUCKETS: Final = _gauge(
    "penstock_quota_buckets",
    "Users, clients or addresses whose use is being counted for a quota.",
    "quota",
)
REQUEST_MEMORY_BYTES: Final = _gauge(
    "penstock_request_memory_bytes", "Bytes of requests that are arriving or waiting."
)
FETCH_SESSIONS: Final = _gauge("penstock_fetch_sessions", "Incremental fetch sessions.")
FETCH_SESSIONS_EVICTED: Final = _counter(
    "penstock_fetch_sessions_evicted_total", "Fetch sessions evicted."
)

# -- share groups ------------------------------------------------------------------------------

SHARE_SESSIONS: Final = _gauge(
    "penstock_share_sessions", "Members of share groups that fetch from this node."
)
SHARE_SESSIONS_LOST: Final = _counter(
    "penstock_share_sessions_lost_total",
    "Share sessions that ended with their connection, not by a request.",
)
SHARE_PARTITIONS: Final = _gauge(
    "penstock_share_partitions",
    "Partitions that share groups consume from this node, one for each group.",
)
SHARE_RECORDS_IN_FLIGHT: Final = _gauge(
    "penstock_share_records_in_flight",
    "Records that members of share groups have and have not acknowledged.",
)
SHARE_ACKNOWLEDGEMENTS: Final = _counter(
    "penstock_share_acknowledgements_total",
    "Records that members of share groups have acknowledged, by type.",
    "type",
)
SHARE_LOCK_TIMEOUTS: Final = _counter(
    "penstock_share_lock_timeouts_total",
    "Records that members of share groups kept for too long, so that others get them.",
)
SHARE_FAILED_WRITES: Final = _counter(
    "penstock_share_failed_writes_total",
    "Changes of share groups in a partition that could not be persisted.",
)
SHARE_FAILED_LOADS: Final = _counter(
    "penstock_share_failed_loads_total",
    "Times that what a share group has consumed of a partition could not be read.",
)

# -- metrics of clients ------------------------------------------------------------------------

CLIENT_INSTANCES: Final = _gauge(
    "penstock_client_instances", "Clients that have asked which metrics they shall push."
)
CLIENT_PUSHES: Final = _counter(
    "penstock_client_pushes_total", "Pushes of metrics that clients were allowed."
)
CLIENT_METRICS_IGNORED: Final = _counter(
    "penstock_client_metrics_ignored_total",
    "Pushed metrics and points that are not shown: histograms, what is too long, and what nobody "
    "asked for.",
)
CLIENT_SERIES: Final = _gauge("penstock_client_series", "Numbers of clients that are shown.")
CLIENT_SERIES_DROPPED: Final = _counter(
    "penstock_client_series_dropped_total", "Numbers that were pushed when there was no room."
)
CLIENT_INFO: Final = _gauge(
    "penstock_client_info",
    "Always 1; the labels say which software a client is that has pushed metrics.",
    "client_id",
    "client_instance_id",
    "software_name",
    "software_version",
)
CLIENT_GAUGE: Final = _gauge(
    "penstock_client_gauge",
    "A gauge that a client has pushed, by the client's name of it and its attributes.",
    "client_id",
    "client_instance_id",
    "metric",
    "attributes",
)
CLIENT_SUM: Final = _counter(
    "penstock_client_sum_total",
    "A sum that a client has pushed and that only grows, likewise.",
    "client_id",
    "client_instance_id",
    "metric",
    "attributes",
)

# -- the process -------------------------------------------------------------------------------

EVENT_LOOP_LAG_SECONDS: Final = _histogram(
    "penstock_event_loop_lag_seconds",
    "How much later than asked the event loop ran a timer, sampled ten times a second.",
)
BUILD_INFO: Final = _gauge(
    "penstock_build_info",
    "Always 1; the labels say what runs, as which node of which cluster.",
    "version",
    "compiled",
    "node",
    "cluster",
)
PROCESS_CPU_SECONDS: Final = _counter(
    "process_cpu_seconds_total", "User and system processor time, in seconds."
)
PROCESS_RESIDENT_MEMORY_BYTES: Final = _gauge(
    "process_resident_memory_bytes", "Resident memory, in bytes."
)
PROCESS_VIRTUAL_MEMORY_BYTES: Final = _gauge(
    "process_virtual_memory_bytes", "Virtual memory, in bytes."
)
PROCESS_OPEN_FDS: Final = _gauge("process_open_fds", "Open file descriptors.")
PROCESS_MAX_FDS: Final = _gauge("process_max_fds", "The limit of open file descriptors.")
PROCESS_START_TIME_SECONDS: Final = _gauge(
    "process_start_time_seconds", "Start of the process, in seconds since 1970."
)
