"""Broker settings of groups and of the topic that keeps their offsets."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.broker_share import ShareGroupSettings
from penstock.config.broker_streams import StreamsGroupSettings
from penstock.config.table import (
    ConfigError,
    Importance,
    OneOf,
    SettingType,
    UpdateMode,
    at_least,
    setting,
)

INT32_MAX = 2**31 - 1
CLASSIC = "classic"
STREAMS = "streams"
SERVED_PROTOCOLS = (CLASSIC, "consumer", STREAMS)
OTHER_PROTOCOLS = ("share",)
"""Kafka's further group protocols, which may be named and have no effect."""
TIMES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
BOUNDED = {
    "consumer": TIMES,
    STREAMS: TIMES,
    "share": (
        *TIMES,
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    ),
}
"""By kind of group: what has a least and a most that groups may set."""


@dataclass(frozen=True)
class OffsetsTopicSettings:
    offsets_topic_num_partitions: int = setting(
        SettingType.INT,
        50,
        "How many partitions `__consumer_offsets` gets when it is created; each group belongs to "
        "one of them, so the number must not change afterwards.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_replication_factor: int = setting(
        SettingType.SHORT,
        3,
        "How many replicas the partitions of `__consumer_offsets` get when it is created; as many "
        "as there are brokers where those are fewer.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_segment_bytes: int = setting(
        SettingType.INT,
        104_857_600,
        "The segment size of `__consumer_offsets`: small enough for quick compaction.",
        rule=at_least(1_048_576),
        importance=Importance.HIGH,
    )
    offsets_commit_timeout_ms: int = setting(
        SettingType.INT,
        5_000,
        "How long a group's request waits for its records to be replicated before the client is "
        "told to try again.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    offset_metadata_max_bytes: int = setting(
        SettingType.INT,
        4_096,
        "The longest text that a commit may store beside an offset.",
        rule=at_least(0),
        importance=Importance.HIGH,
    )
    offsets_retention_minutes: int = setting(
        SettingType.INT,
        10_080,
        "How long offsets are kept after their group has lost its last member or, where nobody "
        "subscribes to their topic, after their commit.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    offsets_retention_check_interval_ms: int = setting(
        SettingType.LONG,
        600_000,
        "How often expired offsets are looked for.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )


@dataclass(frozen=True)
class ClassicGroupSettings:
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        SettingType.LIST,
        SERVED_PROTOCOLS,
        "The group protocols that members may speak; `classic` must be among them. `share` may be "
        "named and has no effect: share groups depend on the feature `share.version` alone.",
        rule=OneOf((*SERVED_PROTOCOLS, *OTHER_PROTOCOLS)),
    )
    group_min_session_timeout_ms: int = setting(
        SettingType.INT,
        6_000,
        "The shortest session timeout that a member of a classic group may ask for.",
        rule=at_least(0),
    )
    group_max_session_timeout_ms: int = setting(
        SettingType.INT,
        1_800_000,
        "The longest session timeout that a member of a classic group may ask for.",
        rule=at_least(0),
    )
    group_initial_rebalance_delay_ms: int = setting(
        SettingType.INT,
        3_000,
        "How long the first rebalance of an empty classic group waits for more members.",
        rule=at_least(0),
    )
    group_max_size: int = setting(
        SettingType.INT,
        INT32_MAX,
        "How many members a classic group may have.",
        rule=at_least(1),
    )


@dataclass(frozen=True)
class ConsumerGroupSettings:
    group_consumer_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "After how long without a heartbeat a member of a consumer group is replaced.",
        rule=at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "The least that `group.consumer.session.timeout.ms` may be.",
        rule=at_least(1),
    )
    group_consumer_max_session_timeout_ms: int = setting(
        SettingType.INT,
        60_000,
        "The most that `group.consumer.session.timeout.ms` may be.",
        rule=at_least(1),
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "How often members of consumer groups are told to send heartbeats.",
        rule=at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "The least that `group.consumer.heartbeat.interval.ms` may be.",
        rule=at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        15_000,
        "The most that `group.consumer.heartbeat.interval.ms` may be.",
        rule=at_least(1),
    )
    group_consumer_max_size: int = setting(
        SettingType.INT,
        INT32_MAX,
        "How many members a consumer group may have.",
        rule=at_least(1),
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        SettingType.LIST,
        ("uniform", "range"),
        "The assignors that members of consumer groups may ask for; the first is the default.",
        rule=OneOf(("uniform", "range")),
    )
    group_consumer_migration_policy: str = setting(
        SettingType.STRING,
        "bidirectional",
        "Which way groups with members may move between the two protocols.",
        rule=OneOf(("disabled", "upgrade", "downgrade", "bidirectional")),
    )
    group_consumer_assignment_interval_ms: int = setting(
        SettingType.INT,
        1_000,
        "The least time between two assignments of a consumer group.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        SettingType.INT,
        0,
        "The least that `group.consumer.assignment.interval.ms` may be.",
        rule=at_least(0),
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        SettingType.INT,
        15_000,
        "The most that `group.consumer.assignment.interval.ms` may be.",
        rule=at_least(0),
    )


@dataclass(frozen=True)
class GroupSettings(
    OffsetsTopicSettings,
    ClassicGroupSettings,
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
):
    """Everything about groups."""

    @property
    def protocols_without_effect(self) -> tuple[str, ...]:
        """What `group.coordinator.rebalance.protocols` names in vain."""
        named = self.group_coordinator_rebalance_protocols
        return tuple(protocol for protocol in named if protocol in OTHER_PROTOCOLS)


def check_groups(config: GroupSettings) -> None:
    """Raises `ConfigError` where settings of groups contradict each other."""
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError(
            f"group.min.session.timeout.ms ({config.group_min_session_timeout_ms}) cannot be more "
            f"than group.max.session.timeout.ms ({config.group_max_session_timeout_ms})"
        )
    for kind, bounded in BOUNDED.items():
        for what in bounded:
            _check_bounds(config, kind, what)
        session = getattr(config, f"group_{kind}_session_timeout_ms")
        if getattr(config, f"group_{kind}_heartbeat_interval_ms") >= session:
            raise ConfigError(
                f"group.{kind}.heartbeat.interval.ms must be less than "
                f"group.{kind}.session.timeout.ms"
            )
    replicas, most = (
        config.group_streams_num_standby_replicas,
        config.group_streams_max_standby_replicas,
    )
    if replicas > most:
        raise ConfigError(
            f"group.streams.num.standby.replicas ({replicas}) cannot be more than "
            f"group.streams.max.standby.replicas ({most})"
        )
    if CLASSIC not in config.group_coordinator_rebalance_protocols:
        raise ConfigError(
            "group.coordinator.rebalance.protocols cannot be "
            f"{','.join(config.group_coordinator_rebalance_protocols)!r}: it must name classic"
        )
    if not config.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors cannot be empty: name at least one")
    if config.group_share_max_share_sessions < config.group_share_max_size:
        raise ConfigError(
            f"group.share.max.share.sessions ({config.group_share_max_share_sessions}) cannot be "
            f"less than group.share.max.size ({config.group_share_max_size})"
        )


def _check_bounds(config: GroupSettings, kind: str, what: str) -> None:
    field = what.replace(".", "_")
    low = getattr(config, f"group_{kind}_min_{field}")
    high = getattr(config, f"group_{kind}_max_{field}")
    value = getattr(config, f"group_{kind}_{field}")
    if not low <= value <= high:
        raise ConfigError(
            f"group.{kind}.{what} cannot be '{value}': it must be between "
            f"group.{kind}.min.{what} ({low}) and group.{kind}.max.{what} ({high})"
        )
