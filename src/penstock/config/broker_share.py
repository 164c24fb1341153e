"""Broker settings of share groups: what holds for those that set nothing, and what they may set."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.table import Between, Only, SettingType, UpdateMode, at_least, setting


@dataclass(frozen=True)
class ShareGroupSettings:
    group_share_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "After how long without a heartbeat a member of a share group is taken to be gone.",
        rule=at_least(1),
    )
    group_share_min_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "The least that `group.share.session.timeout.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_share_max_session_timeout_ms: int = setting(
        SettingType.INT,
        60_000,
        "The most that `group.share.session.timeout.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_share_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "How often members of share groups are told to send heartbeats.",
        rule=at_least(1),
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "The least that `group.share.heartbeat.interval.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        15_000,
        "The most that `group.share.heartbeat.interval.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_share_assignment_interval_ms: int = setting(
        SettingType.INT,
        1_000,
        "The least time between two assignments of a share group.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms: int = setting(
        SettingType.INT,
        0,
        "The least that `group.share.assignment.interval.ms` may be, and a group's own setting.",
        rule=at_least(0),
    )
    group_share_max_assignment_interval_ms: int = setting(
        SettingType.INT,
        15_000,
        "The most that `group.share.assignment.interval.ms` may be, and a group's own setting.",
        rule=at_least(0),
    )
    group_share_record_lock_duration_ms: int = setting(
        SettingType.INT,
        30_000,
        "How long a consumer of a share group may keep a record that it got before others get it.",
        rule=Between(1_000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms: int = setting(
        SettingType.INT,
        15_000,
        "The least that `group.share.record.lock.duration.ms` may be, and a group's own setting.",
        rule=Between(1_000, 30_000),
    )
    group_share_max_record_lock_duration_ms: int = setting(
        SettingType.INT,
        60_000,
        "The most that `group.share.record.lock.duration.ms` may be, and a group's own setting.",
        rule=Between(30_000, 3_600_000),
    )
    group_share_delivery_count_limit: int = setting(
        SettingType.INT,
        5,
        "How often a record is delivered to a share group at most; then it is archived.",
        rule=Between(2, 10),
    )
    group_share_min_delivery_count_limit: int = setting(
        SettingType.INT,
        2,
        "The least that `group.share.delivery.count.limit` may be, and a group's own setting.",
        rule=Between(2, 5),
    )
    group_share_max_delivery_count_limit: int = setting(
        SettingType.INT,
        10,
        "The most that `group.share.delivery.count.limit` may be, and a group's own setting.",
        rule=Between(5, 25),
    )
    group_share_partition_max_record_locks: int = setting(
        SettingType.INT,
        2_000,
        "How many records of one partition may be on their way to consumers of one share group.",
        rule=Between(100, 10_000),
    )
    group_share_min_partition_max_record_locks: int = setting(
        SettingType.INT,
        100,
        "The least that `group.share.partition.max.record.locks` may be, and a group's own "
        "setting.",
        rule=Between(100, 2_000),
    )
    group_share_max_partition_max_record_locks: int = setting(
        SettingType.INT,
        4_000,
        "The most that `group.share.partition.max.record.locks` may be, and a group's own setting.",
        rule=Between(2_000, 10_000),
    )
    group_share_max_size: int = setting(
        SettingType.INT,
        200,
        "How many members a share group may have.",
        rule=Between(1, 1_000),
    )
    group_share_max_share_sessions: int = setting(
        SettingType.INT,
        2_000,
        "How many share sessions a broker keeps: one for each member of a share group that "
        "fetches from it.",
        rule=at_least(1),
    )
    group_share_initialize_retry_interval_ms: int = setting(
        SettingType.INT,
        30_000,
        "After how long the start of a share group in a partition is tried again, where the "
        "share coordinator has not answered.",
        rule=at_least(1),
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether the dead-letter topic of a share group is created when it is first needed.",
        update=UpdateMode.CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        SettingType.STRING,
        "dlq.",
        "How the names of dead-letter topics have to begin; empty: anyhow.",
        update=UpdateMode.CLUSTER_WIDE,
    )
    group_share_assignors: tuple[str, ...] = setting(
        SettingType.LIST,
        ("simple",),
        "How share groups are assigned.",
        rule=Only(("simple",), "share groups have one assignor"),
    )
