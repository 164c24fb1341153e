"""The settings that a consumer group may have of its own, each field a row of the table.

What a group does not set, the broker's setting of the same meaning decides (`group.` before the
name). Bounds are the broker's, too. Groups without settings of their own share one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.config.table import ConfigError, SettingType, Synonym, Table, at_least, setting

if TYPE_CHECKING:
    from penstock.config.broker_config import BrokerConfig


def _from(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """What is in force for one group."""

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


GROUP_SETTINGS = Table(
    "group",
    ConsumerGroupConfig,
    absent={
        "consumer.assignor.offload.enable": "assignments are made on the node's one loop",
        "share.": "there are no share groups yet",
        "streams.": "there are no streams groups",
    },
)


class GroupDefaults(Protocol):
    """The broker's settings that a group's stand over."""

    @property
    def group_consumer_session_timeout_ms(self) -> int: ...

    @property
    def group_consumer_heartbeat_interval_ms(self) -> int: ...

    @property
    def group_consumer_assignment_interval_ms(self) -> int: ...


def group_defaults(broker: GroupDefaults) -> ConsumerGroupConfig:
    """What is in force for a group without settings of its own."""
    return ConsumerGroupConfig(
        broker.group_consumer_session_timeout_ms,
        broker.group_consumer_heartbeat_interval_ms,
        broker.group_consumer_assignment_interval_ms,
    )


def group_config(overrides: Mapping[str, str], broker: GroupDefaults) -> ConsumerGroupConfig:
    """A group's stored settings over the broker's; those that this release does not know or allow
    are left out.
    """
    values: dict[str, Any] = GROUP_SETTINGS.usable(overrides)
    return replace(group_defaults(broker), **values)


def check_group_settings(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises `ConfigError` unless a group can have these settings."""
    values: dict[str, Any] = GROUP_SETTINGS.parse(overrides)
    for name in overrides:
        row = GROUP_SETTINGS[name]
        what = name.removeprefix("consumer.")
        low = getattr(broker, f"group_consumer_min_{what.replace('.', '_')}")
        high = getattr(broker, f"group_consumer_max_{what.replace('.', '_')}")
        if not low <= values[row.field] <= high:
            raise ConfigError(
                f"{name} cannot be '{overrides[name]}': it must be between "
                f"group.consumer.min.{what} ({low}) and group.consumer.max.{what} ({high})"
            )
    config = replace(group_defaults(broker), **values)
    if config.consumer_heartbeat_interval_ms >= config.consumer_session_timeout_ms:
        raise ConfigError(
            f"consumer.heartbeat.interval.ms ({config.consumer_heartbeat_interval_ms}) must be "
            f"less than consumer.session.timeout.ms ({config.consumer_session_timeout_ms})"
        )
