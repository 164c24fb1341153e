"""Every API of Kafka 4.3: its key, its versions, and the header versions that follow from them.

It stands apart from the message tables, so that a frame's header can be read, and the support page
written, without importing any of them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from penstock.wire.schema import parse_versions

Listener: TypeAlias = Literal["broker", "controller", "both"]


class ApiKey(IntEnum):
    """Kafka's API keys, by Kafka's names. 4 to 7 belonged to APIs that Kafka 4 has dropped."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    # Ours, far above Kafka's.
    ALTER_ROLE = 20_000
    DESCRIBE_ROLES = 20_001


OUR_KEYS_FROM: Final = 20_000
"""APIs from here on are not Kafka's (docs/adr/0023)."""
OUR_TAGS_FROM: Final = 20_000
"""Tagged fields from here on are not Kafka's, which numbers its own from 0 on and passes over those
that it does not know (docs/adr/0030).
"""


class Api(NamedTuple):
    versions: range
    """What Kafka 4.3 can decode; see `unstable_from` for what it offers."""
    flexible_from: int | None
    listener: Listener
    """Where Kafka offers it: to clients, to the quorum's own nodes, or to both."""
    unstable_from: int | None = None
    """Versions from here on are not offered unless unstable versions are switched on."""

    @property
    def stable_versions(self) -> range:
        if self.unstable_from is None:
            return self.versions
        return range(self.versions.start, self.unstable_from)


def _api(
    versions: str, flexible: int | None, listener: Listener, unstable_from: int | None = None
) -> Api:
    return Api(parse_versions(versions), flexible, listener, unstable_from)


APIS: Final[dict[ApiKey, Api]] = {
    ApiKey.PRODUCE: _api("3-13", 9, "broker"),
    ApiKey.FETCH: _api("4-18", 12, "both"),
    ApiKey.LIST_OFFSETS: _api("1-11", 6, "broker"),
    ApiKey.METADATA: _api("0-13", 9, "broker"),
    ApiKey.OFFSET_COMMIT: _api("2-10", 8, "broker"),
    ApiKey.OFFSET_FETCH: _api("1-10", 6, "broker"),
    ApiKey.FIND_COORDINATOR: _api("0-6", 3, "broker"),
    ApiKey.JOIN_GROUP: _api("0-9", 6, "broker"),
    ApiKey.HEARTBEAT: _api("0-4", 4, "broker"),
    ApiKey.LEAVE_GROUP: _api("0-5", 4, "broker"),
    ApiKey.SYNC_GROUP: _api("0-5", 4, "broker"),
    ApiKey.DESCRIBE_GROUPS: _api("0-6", 5, "broker"),
    ApiKey.LIST_GROUPS: _api("0-5", 3, "broker"),
    ApiKey.SASL_HANDSHAKE: _api("0-1", None, "both"),
    ApiKey.API_VERSIONS: _api("0-4", 3, "both"),
    ApiKey.CREATE_TOPICS: _api("2-7", 5, "both"),
    ApiKey.DELETE_TOPICS: _api("1-6", 4, "both"),
    ApiKey.DELETE_RECORDS: _api("0-2", 2, "broker"),
    ApiKey.INIT_PRODUCER_ID: _api("0-6", 2, "broker", unstable_from=6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _api("2-4", 4, "broker"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _api("0-5", 3, "broker"),
    ApiKey.ADD_OFFSETS_TO_TXN: _api("0-4", 3, "broker"),
    ApiKey.END_TXN: _api("0-5", 3, "broker"),
    ApiKey.WRITE_TXN_MARKERS: _api("1-2", 1, "broker"),
    ApiKey.TXN_OFFSET_COMMIT: _api("0-5", 3, "broker"),
    ApiKey.DESCRIBE_ACLS: _api("1-3", 2, "both"),
    ApiKey.CREATE_ACLS: _api("1-3", 2, "both"),
    ApiKey.DELETE_ACLS: _api("1-3", 2, "both"),
    ApiKey.DESCRIBE_CONFIGS: _api("1-4", 4, "both"),
    ApiKey.ALTER_CONFIGS: _api("0-2", 2, "both"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _api("1-2", 2, "broker"),
    ApiKey.DESCRIBE_LOG_DIRS: _api("1-5", 2, "broker"),
    ApiKey.SASL_AUTHENTICATE: _api("0-2", 2, "both"),
    ApiKey.CREATE_PARTITIONS: _api("0-3", 2, "both"),
    ApiKey.CREATE_DELEGATION_TOKEN: _api("1-3", 2, "both"),
    ApiKey.RENEW_DELEGATION_TOKEN: _api("1-2", 2, "both"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _api("1-2", 2, "both"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _api("1-3", 2, "both"),
    ApiKey.DELETE_GROUPS: _api("0-2", 2, "broker"),
    ApiKey.ELECT_LEADERS: _api("0-2", 2, "both"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _api("0-1", 1, "both"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _api("0-1", 0, "both"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _api("0", 0, "both"),
    ApiKey.OFFSET_DELETE: _api("0", None, "broker"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _api("0-1", 1, "broker"),
    ApiKey.ALTER_CLIENT_QUOTAS: _api("0-1", 1, "both"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _api("0", 0, "both"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _api("0", 0, "both"),
    ApiKey.VOTE: _api("0-2", 0, "controller"),
    ApiKey.BEGIN_QUORUM_EPOCH: _api("0-1", 1, "controller"),
    ApiKey.END_QUORUM_EPOCH: _api("0-1", 1, "controller"),
    ApiKey.DESCRIBE_QUORUM: _api("0-2", 0, "both"),
    ApiKey.ALTER_PARTITION: _api("2-3", 0, "controller"),
    ApiKey.UPDATE_FEATURES: _api("0-2", 0, "both"),
    ApiKey.ENVELOPE: _api("0", 0, "controller"),
    ApiKey.FETCH_SNAPSHOT: _api("0-1", 0, "controller"),
    ApiKey.DESCRIBE_CLUSTER: _api("0-2", 0, "both"),
    ApiKey.DESCRIBE_PRODUCERS: _api("0", 0, "broker"),
    ApiKey.BROKER_REGISTRATION: _api("0-4", 0, "controller"),
    ApiKey.BROKER_HEARTBEAT: _api("0-2", 0, "controller"),
    ApiKey.UNREGISTER_BROKER: _api("0", 0, "both"),
    ApiKey.DESCRIBE_TRANSACTIONS: _api("0", 0, "broker"),
    ApiKey.LIST_TRANSACTIONS: _api("0-2", 0, "broker"),
    ApiKey.ALLOCATE_PRODUCER_IDS: _api("0", 0, "controller"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _api("0-1", 0, "broker"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _api("0-1", 0, "broker"),
    ApiKey.CONTROLLER_REGISTRATION: _api("0", 0, "controller"),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _api("0", 0, "broker"),
    ApiKey.PUSH_TELEMETRY: _api("0", 0, "broker"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _api("0", 0, "controller"),
    ApiKey.LIST_CONFIG_RESOURCES: _api("0-1", 0, "broker"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _api("0", 0, "broker"),
    ApiKey.SHARE_GROUP_HEARTBEAT: _api("1", 0, "broker"),
    ApiKey.SHARE_GROUP_DESCRIBE: _api("1", 0, "broker"),
    ApiKey.SHARE_FETCH: _api("1-2", 0, "broker"),
    ApiKey.SHARE_ACKNOWLEDGE: _api("1-2", 0, "broker"),
    ApiKey.ADD_RAFT_VOTER: _api("0-1", 0, "both"),
    ApiKey.REMOVE_RAFT_VOTER: _api("0", 0, "both"),
    ApiKey.UPDATE_RAFT_VOTER: _api("0", 0, "controller"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _api("0", 0, "broker"),
    ApiKey.READ_SHARE_GROUP_STATE: _api("0", 0, "broker"),
    ApiKey.WRITE_SHARE_GROUP_STATE: _api("0-1", 0, "broker"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _api("0", 0, "broker"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _api("0-1", 0, "broker"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _api("0", 0, "broker"),
    ApiKey.STREAMS_GROUP_DESCRIBE: _api("0", 0, "broker"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _api("0-1", 0, "broker"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _api("0", 0, "broker"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _api("0", 0, "broker"),
    ApiKey.ALTER_ROLE: _api("0", 0, "both"),
    ApiKey.DESCRIBE_ROLES: _api("0", 0, "both"),
}


def request_header_version(api_key: int, version: int) -> int:
    """The version of `RequestHeader` before a request; also of versions that nobody serves yet.

    An unknown key raises ValueError.
    """
    flexible_from = APIS[ApiKey(api_key)].flexible_from
    return 2 if flexible_from is not None and version >= flexible_from else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of `ResponseHeader` before a response.

    ApiVersions always has version 0: a client that asked in a version the broker does not know
    must be able to read the answer.
    """
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return request_header_version(api_key, version) - 1
