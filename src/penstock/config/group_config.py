"""The settings that a group may have of its own, each field a row of the table.

What a group does not set, the broker's setting of the same meaning decides (`group.` before the
name), where there is one. Bounds are the broker's, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.config.durations import duration_ms
from penstock.config.table import (
    Between,
    Checked,
    ConfigError,
    OneOf,
    SettingType,
    Synonym,
    Table,
    at_least,
    setting,
)

if TYPE_CHECKING:
    from penstock.config.broker_config import BrokerConfig

INT32_MAX: Final = 2**31 - 1
BY_DURATION: Final = "by_duration:"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{0,249}", re.ASCII)
CONSTANT: Final = "constant"
LINEAR: Final = "linear"
EXPONENTIAL: Final = "exponential"
RETRY_MULTIPLIER_MAX: Final = 10
"""With it, no power of a delivery count is more than a float can hold."""
RETRY_BACKOFF_MS_MAX: Final = 7 * 24 * 60 * 60 * 1000
"""The times of parked records are not persisted: longer than this is no retry."""


def _from(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _may_take_dead_letters(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and not name.startswith("__")


def _is_offset_reset(text: str) -> bool:
    if text in ("latest", "earliest"):
        return True
    age_ms = reset_age_ms(text)
    return age_ms is not None and age_ms >= 0


def reset_age_ms(text: str) -> int | None:
    """How long ago a group begins by `share.auto.offset.reset`; None if not by a duration."""
    if not text.startswith(BY_DURATION):
        return None
    return duration_ms(text.removeprefix(BY_DURATION))


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """What is in force for one consumer group."""

    consumer_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "After how long without a heartbeat a member of the group is replaced.",
        rule=at_least(1),
        synonyms=_from("group.consumer.session.timeout.ms"),
    )
    consumer_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "How often members of the group are told to send heartbeats.",
        rule=at_least(1),
        synonyms=_from("group.consumer.heartbeat.interval.ms"),
    )
    consumer_assignment_interval_ms: int = setting(
        SettingType.INT,
        1_000,
        "The least time between two assignments of the group.",
        rule=at_least(0),
        synonyms=_from("group.consumer.assignment.interval.ms"),
    )


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """What is in force for one share group."""

    share_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "After how long without a heartbeat a member of the share group is taken to be gone.",
        rule=at_least(1),
        synonyms=_from("group.share.session.timeout.ms"),
    )
    share_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "How often members of the share group are told to send heartbeats.",
        rule=at_least(1),
        synonyms=_from("group.share.heartbeat.interval.ms"),
    )
    share_record_lock_duration_ms: int = setting(
        SettingType.INT,
        30_000,
        "How long a consumer may keep a record that it got before others get it.",
        rule=at_least(1_000),
        synonyms=_from("group.share.record.lock.duration.ms"),
    )
    share_delivery_count_limit: int = setting(
        SettingType.INT,
        5,
        "How often a record is delivered at most; then it is archived.",
        rule=at_least(2),
        synonyms=_from("group.share.delivery.count.limit"),
    )
    share_partition_max_record_locks: int = setting(
        SettingType.INT,
        2_000,
        "How many records of one partition may be on their way to consumers of the share group.",
        rule=at_least(100),
        synonyms=_from("group.share.partition.max.record.locks"),
    )
    share_auto_offset_reset: str = setting(
        SettingType.STRING,
        "latest",
        "Where a share group begins in a partition that is new to it: with what is written from "
        "now on (`latest`), with what is there (`earliest`), or with what is at most so old "
        "(`by_duration:` and a duration as in ISO 8601, such as `by_duration:PT1H`).",
        rule=Checked(
            _is_offset_reset, "latest, earliest, or by_duration: with a duration (PnDTnHnMn.nS)"
        ),
    )
    share_isolation_level: str = setting(
        SettingType.STRING,
        "read_uncommitted",
        "Whether the share group gets all records of transactions, or those of committed ones.",
        rule=OneOf(("read_committed", "read_uncommitted")),
    )
    share_renew_acknowledge_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether consumers may ask for more time with a record (acknowledgements of type renew).",
    )
    share_assignment_interval_ms: int = setting(
        SettingType.INT,
        1_000,
        "The least time between two assignments of the share group.",
        rule=at_least(0),
        synonyms=_from("group.share.assignment.interval.ms"),
    )
    errors_deadletterqueue_topic_name: str = setting(
        SettingType.STRING,
        "",
        "The topic that gets the dead letters of the share group: what is rejected, or delivered "
        "as often as `share.delivery.count.limit` says. Empty: there are none. The feature "
        "`share.version` has to be at level 2.",
        rule=Checked(_may_take_dead_letters, "a topic's name that does not begin with __"),
    )
    errors_deadletterqueue_copy_record_enable: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether dead letters have the key and the value of the record, or headers alone.",
    )
    share_retry_backoff_ms: int = setting(
        SettingType.LONG,
        0,
        "How long a record rests after its first delivery came to nothing (released, lock run out, "
        "consumer gone) before it is delivered again; 0: not at all. Kafka has no such setting.",
        rule=Between(0, RETRY_BACKOFF_MS_MAX),
    )
    share_retry_backoff_type: str = setting(
        SettingType.STRING,
        EXPONENTIAL,
        "How the rest grows with each further delivery: not at all, by the first rest, or by "
        "`share.retry.backoff.multiplier`.",
        rule=OneOf((CONSTANT, LINEAR, EXPONENTIAL)),
    )
    share_retry_backoff_multiplier: float = setting(
        SettingType.DOUBLE,
        2.0,
        "By what an exponential rest is multiplied with each further delivery.",
        rule=Between(1, RETRY_MULTIPLIER_MAX),
    )
    share_retry_backoff_max_ms: int = setting(
        SettingType.LONG,
        300_000,
        "The longest that a record rests.",
        rule=Between(1, RETRY_BACKOFF_MS_MAX),
    )


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """What is in force for one streams group."""

    streams_session_timeout_ms: int = setting(
        SettingType.INT,
        45_000,
        "After how long without a heartbeat a member of the streams group is taken to be gone.",
        rule=at_least(1),
        synonyms=_from("group.streams.session.timeout.ms"),
    )
    streams_heartbeat_interval_ms: int = setting(
        SettingType.INT,
        5_000,
        "How often members of the streams group are told to send heartbeats.",
        rule=at_least(1),
        synonyms=_from("group.streams.heartbeat.interval.ms"),
    )
    streams_num_standby_replicas: int = setting(
        SettingType.INT,
        0,
        "How many members beside the one that runs a task keep a copy of its state.",
        rule=at_least(0),
        synonyms=_from("group.streams.num.standby.replicas"),
    )
    streams_initial_rebalance_delay_ms: int = setting(
        SettingType.INT,
        3_000,
        "How long the first assignment of the streams group, when it was empty, waits for more "
        "members.",
        rule=at_least(0),
        synonyms=_from("group.streams.initial.rebalance.delay.ms"),
    )
    streams_assignment_interval_ms: int = setting(
        SettingType.INT,
        1_000,
        "The least time between two assignments of the streams group.",
        rule=at_least(0),
        synonyms=_from("group.streams.assignment.interval.ms"),
    )


OF_LOOP: Final = "assignments are made on the node's one loop"
GROUP_SETTINGS = Table(
    "group",
    (ConsumerGroupConfig, ShareGroupConfig, StreamsGroupConfig),
    absent={
        "consumer.assignor.offload.enable": OF_LOOP,
        "share.assignor.offload.enable": OF_LOOP,
        "streams.assignor.offload.enable": OF_LOOP,
    },
)
_OTHER_LIMITS: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "streams.initial.rebalance.delay.ms": (None, None),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}
"""Where there are not both of `group.KIND.min.` and `.max.`."""
_SHARE_ROWS: Final = Table("group", ShareGroupConfig, absent={})
_STREAMS_ROWS: Final = Table("group", StreamsGroupConfig, absent={})


class GroupDefaults(Protocol):
    """The broker's settings that those of a consumer group stand over."""

    @property
    def group_consumer_session_timeout_ms(self) -> int: ...

    @property
    def group_consumer_heartbeat_interval_ms(self) -> int: ...

    @property
    def group_consumer_assignment_interval_ms(self) -> int: ...


def group_defaults(broker: GroupDefaults) -> ConsumerGroupConfig:
    """What is in force for a consumer group without settings of its own."""
    return ConsumerGroupConfig(
        broker.group_consumer_session_timeout_ms,
        broker.group_consumer_heartbeat_interval_ms,
        broker.group_consumer_assignment_interval_ms,
    )


def group_config(overrides: Mapping[str, str], broker: GroupDefaults) -> ConsumerGroupConfig:
    """A group's stored settings over the broker's; those that this release does not know or allow
    are left out, and those of share groups.
    """
    own = {name: text for name, text in overrides.items() if name.startswith("consumer.")}
    values: dict[str, Any] = GROUP_SETTINGS.usable(own)
    return replace(group_defaults(broker), **values)


def share_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> ShareGroupConfig:
    """What is in force for a share group that has these settings stored."""
    return ShareGroupConfig(**_in_force(_SHARE_ROWS, overrides, broker))


def streams_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> StreamsGroupConfig:
    """What is in force for a streams group that has these settings stored."""
    return StreamsGroupConfig(**_in_force(_STREAMS_ROWS, overrides, broker))


def _in_force(rows: Table, overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Any]:
    """A group's stored settings over the broker's, by field.

    Bounds of the broker may have changed since they were stored: a number beyond them counts as the
    bound. Those that this release does not know or allow are left out.
    """
    values: dict[str, Any] = {
        row.field: getattr(broker, f"group_{row.field}") for row in rows if row.synonyms
    }
    own = {name: text for name, text in overrides.items() if name in rows}
    usable: dict[str, Any] = rows.usable(own) if own else {}
    for row in rows:
        if row.synonyms and row.field in usable:
            low, high = _bounds(row.name, broker)
            usable[row.field] = min(max(usable[row.field], low), high)
    return values | usable


def check_group_settings(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises `ConfigError` unless a group can have these settings."""
    values: dict[str, Any] = GROUP_SETTINGS.parse(overrides)
    for name in overrides:
        row = GROUP_SETTINGS[name]
        if not row.synonyms:
            continue
        low, high = _bounds(name, broker)
        if not low <= values[row.field] <= high:
            least, most = (limit or "no limit" for limit in _limits(name))
            raise ConfigError(
                f"{name} cannot be '{overrides[name]}': it must be between {least} ({low}) and "
                f"{most} ({high})"
            )
    _check_retry_backoff(values)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            values.get(f"{kind}_{what}", getattr(broker, f"group_{kind}_{what}"))
            for what in ("session_timeout_ms", "heartbeat_interval_ms")
        )
        if heartbeat >= session:
            raise ConfigError(
                f"{kind}.heartbeat.interval.ms ({heartbeat}) must be less than "
                f"{kind}.session.timeout.ms ({session})"
            )


def _check_retry_backoff(values: Mapping[str, Any]) -> None:
    first, longest = (
        values.get(field, GROUP_SETTINGS[field.replace("_", ".")].default)
        for field in ("share_retry_backoff_ms", "share_retry_backoff_max_ms")
    )
    if first > longest:
        raise ConfigError(
            f"share.retry.backoff.ms ({first}) must not be more than "
            f"share.retry.backoff.max.ms ({longest})"
        )


def _bounds(name: str, broker: BrokerConfig) -> tuple[int, int]:
    """Between what the broker has a group's setting."""
    least, most = _limits(name)
    return (
        0 if least is None else getattr(broker, least.replace(".", "_")),
        INT32_MAX if most is None else getattr(broker, most.replace(".", "_")),
    )


def _limits(name: str) -> tuple[str | None, str | None]:
    """The broker's settings that say how little and how much a group's setting may be."""
    if name in _OTHER_LIMITS:
        return _OTHER_LIMITS[name]
    kind, _, what = name.partition(".")
    return f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
