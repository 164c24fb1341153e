"""What a door may call, in one page.

A door takes requests from outside: Kafka's protocol (`api/`) is the first of several. It decodes a
request, calls one of these services, and encodes the result. Requests and results are plain values,
of the messages in `wire.messages` where those are plain already: no frame, codec, exchange or
connection is passed in, and no partition or log is given out.

Every call names its principal, as its first argument or in its request: rights, quotas and audit
are handled below this line, for all doors alike. A refusal is an `ApiError`. Owned by the event
loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.serving.append import AppendRequest, AppendResult
from penstock.serving.audit_log import AuditLog
from penstock.serving.cluster import ClusterService
from penstock.serving.groups import GroupService
from penstock.serving.log_dirs import LogDirService
from penstock.serving.offsets import OffsetService
from penstock.serving.queues import QueueService
from penstock.serving.quorum import QuorumService
from penstock.serving.quotas import QuotaService
from penstock.serving.read_in_flight import ReadInFlight, ReadRequest, ReadResult
from penstock.serving.read_session import FetchSessionCache
from penstock.serving.records import RecordService
from penstock.serving.security import SecurityService
from penstock.serving.settings import SettingService
from penstock.serving.share import ShareService
from penstock.serving.share_groups import ShareGroupService
from penstock.serving.share_states import ShareStateService
from penstock.serving.telemetry import TelemetryService
from penstock.serving.topics import TopicService
from penstock.serving.transactions import TransactionService

CountError: TypeAlias = Callable[[int, int], None]
"""Counts an error code that an answer to an API carries."""


@dataclass(frozen=True, slots=True)
class Services:
    append: Callable[[AppendRequest, Callable[[AppendResult], None]], None]
    """Publish records; see `serving.append`."""
    read: Callable[[ReadRequest, Callable[[ReadResult], None]], ReadInFlight | None]
    """Read records, waiting for them if necessary; see `serving.read`."""
    sessions: FetchSessionCache
    """Incremental fetch sessions; see `serving.read_session`."""
    topics: TopicService
    """Find topics, and create those that are missing."""
    records: RecordService
    """Query and delete the records of partitions that this node leads."""
    offsets: OffsetService
    """Where partitions begin and end, and what they held at a time."""
    log_dirs: LogDirService
    """What the replicas on this node take on its disk."""
    groups: GroupService
    """Groups, and the offsets of consumer groups."""
    share: ShareService
    """Records for the members of share groups, and their acknowledgements."""
    share_groups: ShareGroupService
    """Offsets of share groups."""
    queues: QueueService
    """Share groups as queues, for people: who holds what, and what was given up made work again."""
    transactions: TransactionService
    """Transactions, and ids for producers."""
    share_states: ShareStateService
    """What is persisted of share-partitions, for other nodes."""
    settings: SettingService
    """Settings of topics, brokers, groups and subscriptions to clients' metrics."""
    cluster: ClusterService
    """Brokers, features, and requests to the active controller."""
    security: SecurityService
    """Users and their credentials."""
    quorum: QuorumService
    """What the nodes of the metadata quorum ask of each other."""
    quotas: QuotaService
    """What clients use; a door asks it for the usage of a request while it is `active`."""
    telemetry: TelemetryService
    """Metrics that clients push."""
    count_error: CountError
    now_ms: Callable[[], int]
    """Milliseconds since 1970, by the node's clock."""
    audit: AuditLog | None = None
    """To be told of logins, and of requests that change the cluster."""
