"""Broker settings of streams groups: what holds for those that set nothing, what they may set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.table import SettingType, UpdateMode, at_least, setting

INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class StreamsGroupSettings:
    group_streams_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "After how long without a heartbeat a member of a streams group is taken to be gone.",
        rule=at_least(1),
    )
    group_streams_min_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "The least that `group.streams.session.timeout.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_streams_max_session_timeout_ms: int = setting(
        SettingType.INT,
        60_000,
        "The most that `group.streams.session.timeout.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_streams_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "How often members of streams groups are told to send heartbeats.",
        rule=at_least(1),
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "The least that `group.streams.heartbeat.interval.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        15_000,
        "The most that `group.streams.heartbeat.interval.ms` may be, and a group's own setting.",
        rule=at_least(1),
    )
    group_streams_assignment_interval_ms: int = setting(
        SettingType.INT,
        1_000,
        "The least time between two assignments of a streams group.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    group_streams_min_assignment_interval_ms: int = setting(
        SettingType.INT,
        0,
        "The least that `group.streams.assignment.interval.ms` may be, and a group's own setting.",
        rule=at_least(0),
    )
    group_streams_max_assignment_interval_ms: int = setting(
        SettingType.INT,
        15_000,
        "The most that `group.streams.assignment.interval.ms` may be, and a group's own setting.",
        rule=at_least(0),
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        SettingType.INT,
        3_000,
        "How long the first assignment of a streams group, when it was empty, waits for more "
        "members.",
        rule=at_least(0),
    )
    group_streams_max_size: int = setting(
        SettingType.INT,
        INT32_MAX,
        "How many members a streams group may have.",
        rule=at_least(1),
    )
    group_streams_num_standby_replicas: int = setting(
        SettingType.INT,
        0,
        "How many members of a streams group beside the one that runs a task keep a copy of its "
        "state.",
        rule=at_least(0),
    )
    group_streams_max_standby_replicas: int = setting(
        SettingType.INT,
        2,
        "The most that `group.streams.num.standby.replicas` may be, and a group's own setting.",
        rule=at_least(0),
    )
