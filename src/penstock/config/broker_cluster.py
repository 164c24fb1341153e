"""Broker settings of the cluster: the metadata quorum, the brokers' sessions, replication."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from penstock.config.listeners import parse_address
from penstock.config.table import (
    Between,
    ConfigError,
    Importance,
    OneOf,
    SettingType,
    UpdateMode,
    at_least,
    setting,
)

LONG_MAX = (1 << 63) - 1
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


class QuorumVoter(NamedTuple):
    """One of the first voters, as `controller.quorum.voters` names it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True)
class QuorumSettings:
    controller_quorum_voters: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "The first voters of a new cluster's metadata quorum as ID@HOST:PORT, the same list on "
        "each of them; later the quorum itself knows its voters. Empty, and without "
        "`controller.quorum.bootstrap.servers`, means a cluster of this node alone.",
        importance=Importance.HIGH,
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "HOST:PORT of nodes of an existing cluster that this node joins. Addresses of its own do "
        "not count: one that names nobody else is a cluster of its own, as is a node that is "
        "started with the `server.properties` of Kafka's distribution.",
        importance=Importance.HIGH,
    )
    controller_quorum_auto_join_enable: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether a node that joins an existing cluster becomes a voter of its metadata quorum; "
        "the nodes of `controller.quorum.voters` always do.",
    )
    controller_quorum_election_timeout_ms: int = setting(
        SettingType.INT,
        1_000,
        "How long a candidate waits for votes, and the least time before it tries again.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    controller_quorum_fetch_timeout_ms: int = setting(
        SettingType.INT,
        2_000,
        "How long a voter hears nothing from the quorum's leader before it asks for an election, "
        "and a leader nothing from a majority before it resigns. A leader whose process is gone "
        "is noticed at once.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    controller_quorum_election_backoff_max_ms: int = setting(
        SettingType.INT,
        1_000,
        "The longest pause of a voter between two elections that nobody won.",
        rule=at_least(0),
        importance=Importance.HIGH,
    )
    controller_quorum_request_timeout_ms: int = setting(
        SettingType.INT,
        2_000,
        "How long a request between voters may take.",
        rule=at_least(1),
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        SettingType.LONG,
        20 << 20,
        "After how many bytes of new records a snapshot of the metadata is written.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    metadata_log_max_snapshot_interval_ms: int = setting(
        SettingType.LONG,
        3_600_000,
        "After how long a snapshot of changed metadata is written at the latest; 0 for never.",
        rule=at_least(0),
        importance=Importance.HIGH,
    )


@dataclass(frozen=True)
class BrokerSessionSettings:
    inter_broker_listener_name: str | None = setting(
        SettingType.STRING,
        None,
        "The listener by which this node reaches other brokers; where it is not set, the first "
        "one. It may be another one after a restart: a node that offers it is reached by it, one "
        "that does not by another listener that both have, until it does.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Listeners that serve the metadata quorum and nothing else, which clients are not told of. "
        "By the first one this node reaches the quorum and the active controller; at least one "
        "must be among its `listeners`, unless `process.roles` is `broker`. Where none is named, "
        "`inter.broker.listener.name` is for that, too, and every listener serves the quorum.",
        importance=Importance.HIGH,
    )
    broker_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        500,
        "How often a broker tells the controller that it is alive. Kafka's default is 2000.",
        rule=at_least(1),
    )
    broker_session_timeout_ms: int = setting(
        SettingType.INT,
        6_000,
        "After how long without a heartbeat a broker is fenced; one whose process is gone is "
        "noticed at once. Kafka's default is 9000.",
        rule=at_least(1),
    )
    auto_leader_rebalance_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether leadership goes back to the preferred replicas by itself.",
        importance=Importance.HIGH,
    )
    leader_imbalance_check_interval_seconds: int = setting(
        SettingType.LONG,
        300,
        "How often it is checked whether leaders are where they should be.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    leader_imbalance_per_broker_percentage: int = setting(
        SettingType.INT,
        10,
        "How many percent of a broker's partitions may be led by others before leadership is "
        "moved back.",
        rule=Between(0, 100),
        importance=Importance.HIGH,
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Data folders that get no new replicas, or `*`; a node has one folder, so this takes the "
        "node out of the placement of new partitions.",
        update=UpdateMode.PER_BROKER,
    )


@dataclass(frozen=True)
class ReplicationSettings:
    replica_lag_time_max_ms: int = setting(
        SettingType.LONG,
        10_000,
        "How long a follower may be behind before it leaves the in-sync set. Kafka's default is "
        "30000.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    replica_fetch_wait_max_ms: int = setting(
        SettingType.INT,
        500,
        "How long a leader keeps a follower's request when there is nothing new.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    replica_fetch_min_bytes: int = setting(
        SettingType.INT,
        1,
        "How much has to be new before a follower's request is answered early.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    replica_fetch_max_bytes: int = setting(
        SettingType.INT,
        1 << 20,
        "How much of one partition a follower asks for at a time.",
        rule=at_least(1),
    )
    replica_fetch_response_max_bytes: int = setting(
        SettingType.INT,
        10 << 20,
        "How much a follower asks for at a time.",
        rule=at_least(1),
    )
    replica_fetch_backoff_ms: int = setting(
        SettingType.INT,
        100,
        "How long a follower waits after an error before it asks again. Kafka's default is 1000.",
        rule=at_least(0),
    )
    replica_socket_timeout_ms: int = setting(
        SettingType.INT,
        30_000,
        "How long a request between brokers may take; at least `replica.fetch.wait.max.ms`.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        SettingType.LONG,
        5_000,
        "How often the high watermarks are written to disk.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    replica_selector_class: str | None = setting(
        SettingType.STRING,
        None,
        "Which replica a consumer is sent to, by the name of Kafka's class: the leader, or one in "
        "the consumer's rack.",
        rule=OneOf((RACK_AWARE_SELECTOR, LEADER_SELECTOR)),
    )
    leader_replication_throttled_rate: int = setting(
        SettingType.LONG,
        LONG_MAX,
        "Bytes per second that this broker sends at most to throttled replicas that are not in "
        "sync.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    follower_replication_throttled_rate: int = setting(
        SettingType.LONG,
        LONG_MAX,
        "Bytes per second that this broker fetches at most for its throttled replicas.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )


@dataclass(frozen=True)
class ClusterSettings(QuorumSettings, BrokerSessionSettings, ReplicationSettings):
    @property
    def first_voters(self) -> tuple[QuorumVoter, ...]:
        return tuple(_voter(text) for text in self.controller_quorum_voters)

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Where an existing cluster is asked for, apart from the first voters."""
        name = "controller.quorum.bootstrap.servers"
        return tuple(parse_address(text, name) for text in self.controller_quorum_bootstrap_servers)


def _voter(text: str) -> QuorumVoter:
    name = "controller.quorum.voters"
    number, at, address = text.partition("@")
    if not at or not (number.isascii() and number.isdigit()):
        raise ConfigError(
            f"{name} cannot be {text!r}: each voter must be ID@HOST:PORT, as 1@127.0.0.1:9092"
        )
    return QuorumVoter(int(number), *parse_address(address, name))


def check_cluster(config: ClusterSettings, node_id: int, listeners: set[str]) -> None:
    """The settings against each other; `ConfigError` says which do not fit."""
    voters, joins_by = config.first_voters, config.bootstrap_servers
    ids = [voter.id for voter in voters]
    if len(set(ids)) != len(ids):
        raise ConfigError(
            f"controller.quorum.voters cannot be {','.join(config.controller_quorum_voters)!r}: "
            "each voter needs its own id"
        )
    if voters and node_id not in ids and not joins_by:
        raise ConfigError(
            f"controller.quorum.voters does not name node {node_id}: add it, or let the node join "
            "with controller.quorum.bootstrap.servers"
        )
    if config.broker_session_timeout_ms <= config.broker_heartbeat_interval_ms:
        raise ConfigError(
            "broker.session.timeout.ms must be more than broker.heartbeat.interval.ms"
        )
    if config.replica_socket_timeout_ms < config.replica_fetch_wait_max_ms:
        raise ConfigError("replica.socket.timeout.ms cannot be less than replica.fetch.wait.max.ms")
    _check_between(config, listeners)


def _check_between(config: ClusterSettings, listeners: Collection[str]) -> None:
    """By which listeners nodes reach each other."""
    name = config.inter_broker_listener_name
    if name is not None and name.upper() not in listeners:
        raise ConfigError(
            f"inter.broker.listener.name is {name}, which is not among listeners "
            f"({', '.join(sorted(listeners))})"
        )
    of_quorum = [one.upper() for one in config.controller_listener_names]
    if name is not None and name.upper() in of_quorum:
        raise ConfigError(
            f"inter.broker.listener.name is {name}, which is among controller.listener.names: that "
            "is for listeners that serve the metadata quorum alone"
        )
    if of_quorum and set(listeners) <= set(of_quorum):
        raise ConfigError(
            "listeners has none but those of controller.listener.names: clients and other brokers "
            "need one, too"
        )
