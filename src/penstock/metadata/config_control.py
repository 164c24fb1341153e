"""Decisions about settings: replace all of a resource's (AlterConfigs), or change single ones
(incremental).

Topics, brokers, groups and subscriptions to clients' metrics have settings; the broker without a
name is the whole cluster, a group need not exist to have some, and a subscription is its settings.
A resource is changed as a whole or not at all, and one bad resource does not spoil the others. A
record is written only for what really changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.config.broker_config import BROKER_SETTINGS
from penstock.config.client_metrics_config import (
    CLIENT_METRICS_SETTINGS,
    check_client_metrics_settings,
)
from penstock.config.group_config import GROUP_SETTINGS, check_group_settings
from penstock.config.layers import BrokerSettings, check_dynamic
from penstock.config.log_config import TOPIC_SETTINGS, broker_default, check_topic_settings
from penstock.config.table import (
    ConfigError,
    Setting,
    SettingType,
    Table,
    UpdateMode,
    value_text,
)
from penstock.metadata.elr_feature import check_min_isr, cleared
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.names import check_topic_name
from penstock.metadata.records import ConfigRecord, MetadataRecord

_TABLES: dict[int, Table] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.BROKER: BROKER_SETTINGS,
    ResourceType.GROUP: GROUP_SETTINGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}
_BROKER_NAME = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


class AlterOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one setting; `op` as it came, checked when it is applied."""

    name: str
    op: int
    value: str | None


class ConfigControl:
    """The settings that `image` holds, and what would become of them."""

    def __init__(self, image: MetadataImage, settings: BrokerSettings, node_id: int) -> None:
        self._image = image
        self._settings = settings
        self._node_id = node_id

    def replace(
        self, resource_type: int, name: str, values: Sequence[tuple[str, str | None]]
    ) -> list[MetadataRecord]:
        """The records that make `values` all its settings; `ApiError` if refused."""
        self._check_resource(resource_type, name)
        _check_once([key for key, _ in values])
        new = {key: _given(key, value) for key, value in values}
        return self._decided(resource_type, name, new, set(new))

    def change(
        self, resource_type: int, name: str, changes: Sequence[Change]
    ) -> list[MetadataRecord]:
        """The records that apply `changes` to it; `ApiError` if refused."""
        self._check_resource(resource_type, name)
        _check_once([change.name for change in changes])
        new = dict(self._image.config(resource_type, name))
        for change in changes:
            self._apply(resource_type, new, change)
        return self._decided(resource_type, name, new, {change.name for change in changes})

    def _check_resource(self, resource_type: int, name: str) -> None:
        if resource_type == ResourceType.TOPIC:
            if not name:
                raise _invalid("there are no settings for all topics: set the broker's defaults")
            check_topic_name(name)
            if name not in self._image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        elif resource_type == ResourceType.BROKER:
            check_broker_name(self._image, name)
        elif resource_type == ResourceType.GROUP:
            check_group_name(name)
        elif resource_type == ResourceType.CLIENT_METRICS:
            check_subscription_name(name)
        else:
            raise unsupported_resource(resource_type)

    def _apply(self, resource_type: int, new: dict[str, str], change: Change) -> None:
        name = change.name
        if change.op == AlterOp.SET:
            new[name] = _given(name, change.value)
        elif change.op == AlterOp.DELETE:
            # Tools clear what they might have set on a broker, also what does not exist here.
            if new.pop(name, None) is None and resource_type == ResourceType.TOPIC:
                _row(resource_type, name)
        elif change.op in (AlterOp.APPEND, AlterOp.SUBTRACT):
            new[name] = self._edited(resource_type, new.get(name), change)
        else:
            raise _invalid(f"{change.op} is not an operation on {name}: use 0, 1, 2 or 3")

    def _edited(self, resource_type: int, old: str | None, change: Change) -> str:
        """The list setting with elements appended or taken away."""
        row = _row(resource_type, change.name)
        if resource_type == ResourceType.CLIENT_METRICS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{change.name} of client metrics is set as a whole, as in Kafka: nothing can be "
                "added or taken away",
            )
        if row.type is not SettingType.LIST:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{change.name} is not a list: set it, instead of adding or taking away",
            )
        if old is None:
            old = self._inherited(resource_type, change.name)
        items = _items(old)
        edits = _items(_given(change.name, change.value))
        if change.op == AlterOp.APPEND:
            return ",".join(dict.fromkeys([*items, *edits]))
        return ",".join(item for item in items if item not in edits)

    def _inherited(self, resource_type: int, name: str) -> str:
        config = self._settings.config
        if resource_type == ResourceType.TOPIC:
            return value_text(broker_default(name, config)) or ""
        invariant(resource_type == ResourceType.BROKER, "groups have no lists to inherit")
        return self._settings.text(BROKER_SETTINGS[name]) or ""

    def _decided(
        self, resource_type: int, name: str, new: dict[str, str], named: set[str]
    ) -> list[MetadataRecord]:
        """`named` are the settings that the request speaks of, also where they stay the same."""
        old = self._image.config(resource_type, name)
        self._check(resource_type, name, old, new)
        if resource_type == ResourceType.BROKER:
            check_min_isr(self._image, name, {*named, *old.keys() - new.keys()}, new)
        records: list[MetadataRecord] = [
            ConfigRecord(
                resource_type=resource_type, resource_name=name, name=key, value=new.get(key)
            )
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ]
        return [*records, *cleared(self._image, records)]

    def _check(
        self, resource_type: int, name: str, old: Mapping[str, str], new: Mapping[str, str]
    ) -> None:
        try:
            if resource_type == ResourceType.TOPIC:
                check_topic_settings(new, self._settings.config)
            elif resource_type == ResourceType.GROUP:
                check_group_settings(new, self._settings.config)
            elif resource_type == ResourceType.CLIENT_METRICS:
                check_client_metrics_settings(new)
            else:
                self._check_broker(name, old, new)
        except ConfigError as e:
            broker = resource_type == ResourceType.BROKER
            code = ErrorCode.INVALID_REQUEST if broker else ErrorCode.INVALID_CONFIG
            raise ApiError(code, str(e)) from e

    def _check_broker(self, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        level = UpdateMode.PER_BROKER if name else UpdateMode.CLUSTER_WIDE
        for key in {**old, **new}:
            if old.get(key) != new.get(key) and key in new:
                check_dynamic(key, new[key], level)
        if not name:
            own = self._image.config(ResourceType.BROKER, str(self._node_id))
            self._settings.check(new, own)
        elif int(name) == self._node_id:
            self._settings.check(self._image.config(ResourceType.BROKER, ""), new)


def check_broker_name(image: MetadataImage, name: str) -> None:
    """Raises `ApiError` unless `name` is empty (the cluster) or a registered broker's id."""
    if not name:
        return
    if not _BROKER_NAME.fullmatch(name):
        raise _invalid(f"{name!r} is not a broker: give its id, or nothing for the whole cluster")
    if int(name) not in image.brokers:
        known = ", ".join(str(broker_id) for broker_id in sorted(image.brokers))
        raise _invalid(f"there is no broker {name}: the brokers are {known}")


def check_group_name(name: str) -> None:
    """Raises `ApiError` unless `name` can be a group's."""
    if not name:
        raise _invalid("there are no settings for all groups: set the broker's defaults")


def check_subscription_name(name: str) -> None:
    """Raises `ApiError` unless `name` can be that of a subscription to clients' metrics."""
    if not name:
        raise _invalid("a subscription to clients' metrics has a name")


def unsupported_resource(resource_type: int) -> ApiError:
    try:
        kind = ResourceType(resource_type).name
    except ValueError:
        return _invalid(
            f"{resource_type} is not a type of resource: use 2 (topic), 4 (broker), 16 (client "
            "metrics) or 32 (group)"
        )
    return _invalid(
        f"resources of type {kind} have no settings here: topics, brokers, client metrics and "
        "groups have"
    )


def _row(resource_type: int, name: str) -> Setting:
    try:
        return _TABLES[resource_type][name]
    except ConfigError as e:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(e)) from e


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise _invalid(f"{name} has no value: delete it, or give one")
    return value


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_once(names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise _invalid(f"{twice[0]} is in the request twice for the same resource")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
