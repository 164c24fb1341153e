"""A broker's settings with where each came from: defaults, its own file, the cluster's, its own
dynamic.

From weakest to strongest: the table's defaults, the node's file and arguments (static), the
cluster-wide dynamic settings, and this broker's dynamic settings. `config` is the typed sum.
`describe_*` turn it into what DescribeConfigs answers: each value with its source and the chain
of what lies beneath it.

One owner (the node's loop) updates it; `config` is replaced as a whole, so that a reader never
sees a mix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.config.broker_config import BROKER_SETTINGS, BrokerConfig, broker_config
from penstock.config.group_config import GROUP_SETTINGS
from penstock.config.log_config import TOPIC_SETTINGS, broker_default
from penstock.config.table import ConfigError, Setting, SettingType, UpdateMode, Value, value_text


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs sends it."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One described setting; `synonyms` begins with what is in force."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: list[ConfigSynonym]
    read_only: bool
    sensitive: bool
    type: SettingType
    documentation: str


class BrokerSettings:
    """The layers of one broker and their typed sum, `config`."""

    __slots__ = ("_started", "_told", "cluster", "config", "own", "static")

    def __init__(self, static: Mapping[str, str]) -> None:
        self.static = dict(static)
        self.cluster: dict[str, str] = {}
        self.own: dict[str, str] = {}
        self.config: BrokerConfig = broker_config(self.static)
        self._started = self.config
        self._told: set[str] = set()

    @classmethod
    def of(cls, config: BrokerConfig) -> BrokerSettings:
        """The layers of a broker that was started with `config`: what is not default is static."""
        return cls(
            {
                row.name: value_text(value) or ""
                for row in BROKER_SETTINGS
                if (value := getattr(config, row.field)) != row.default
            }
            | dict(config.without_effect)
            | {
                f"listener.name.{listener.lower()}.{name}": str(value)
                for listener, name, value in config.of_listeners
            }
        )

    def update(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
        """Takes the dynamic settings over; returns a sentence for each that had to be left out.

        What was stored by another version may not be valid here; it must not keep the node from
        starting.
        """
        refused: list[str] = []
        self.cluster = _usable(cluster, UpdateMode.CLUSTER_WIDE, refused)
        self.own = _usable(own, UpdateMode.PER_BROKER, refused)
        try:
            self.config = self._sum(self.cluster, self.own)
        except ConfigError:
            self._take_what_fits(refused)
        return refused

    def _sum(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """The typed settings with these dynamic ones; `ConfigError` if they do not fit together."""
        config = broker_config({**self.static, **cluster, **own})
        self._check_listeners(config)
        return config

    def _take_what_fits(self, refused: list[str]) -> None:
        """Leaves out each dynamic setting that does not fit to the file's and those before it."""
        cluster, own = self.cluster, self.own
        self.cluster, self.own, self.config = {}, {}, self._started
        for given, kept in ((cluster, self.cluster), (own, self.own)):
            for name, text in given.items():
                kept[name] = text
                try:
                    self.config = self._sum(self.cluster, self.own)
                except ConfigError as e:
                    del kept[name]
                    refused.append(str(e))

    def check(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Raises `ConfigError` unless these dynamic settings could be taken over."""
        refused: list[str] = []
        of_cluster = _usable(cluster, UpdateMode.CLUSTER_WIDE, refused)
        of_broker = _usable(own, UpdateMode.PER_BROKER, refused)
        if refused:
            raise ConfigError(refused[0])
        self._sum(of_cluster, of_broker)

    def _check_listeners(self, config: BrokerConfig) -> None:
        """What others were told when this broker registered has to stay."""
        started = self._started
        names = {listener.name for listener in started.advertised}
        names |= {started.inter_broker_listener, started.quorum_listener}
        for listener in started.listen:
            if listener.name in names and listener not in config.listen:
                raise ConfigError(
                    f"listeners cannot be {','.join(config.listeners)!r} while the broker runs: "
                    f"{listener} is advertised, so it has to stay"
                )
        if config.inter_broker_listener != started.inter_broker_listener:
            raise ConfigError(
                f"listeners cannot be {','.join(config.listeners)!r} while the broker runs: nodes "
                f"reach each other by the first one, {started.inter_broker_listener}"
            )

    def new_without_effect(self) -> list[str]:
        """The settings that were set without effect since this was asked the last time; one of
        which only a part has none is followed by that part.
        """
        given = [name for name, _ in self.config.without_effect]
        protocols = self.config.protocols_without_effect
        given += [f"group.coordinator.rebalance.protocols={name}" for name in protocols]
        new = [name for name in given if name not in self._told]
        self._told.update(new)
        return new

    def describe_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Every topic setting of a topic with `overrides`."""
        entries = []
        values = TOPIC_SETTINGS.usable(overrides)
        for row in TOPIC_SETTINGS:
            chain = self._topic_chain(row)
            if row.field not in values:
                value = _text_of(row, broker_default(row.name, self.config))
            else:
                value = _text_of(row, values[row.field])
                own = ConfigSynonym(row.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)
                chain.insert(0, own)
            entries.append(_entry(row, value, chain, read_only=False))
        return entries

    def describe_group(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Every group setting of a group with `overrides`."""
        entries = []
        values = GROUP_SETTINGS.usable(overrides)
        for row in GROUP_SETTINGS:
            below = BROKER_SETTINGS[row.synonyms[0].name] if row.synonyms else None
            chain = list(self._chain(below or row))
            value = value_text(getattr(self.config, below.field) if below else row.default)
            if row.field in values:
                value = value_text(values[row.field])
                own = ConfigSynonym(row.name, value, ConfigSource.DYNAMIC_GROUP_CONFIG)
                chain.insert(0, own)
            entries.append(_entry(row, value, chain, read_only=False))
        return entries

    def describe_broker(self) -> list[ConfigEntry]:
        """Every setting of this broker."""
        rows = {**BROKER_SETTINGS.rows, **BROKER_SETTINGS.kafka.rows}
        given = {**self.static, **self.cluster, **self.own}
        rows |= {name: BROKER_SETTINGS[name] for name in given if name not in rows}
        return [
            _entry(
                row,
                self.text(row),
                list(self._chain(row)),
                read_only=row.update is UpdateMode.READ_ONLY,
            )
            for row in rows.values()
        ]

    def text(self, row: Setting) -> str | None:
        """The value in force of a broker setting, be it with or without effect."""
        if row.name in BROKER_SETTINGS.rows:
            return _text_of(row, getattr(self.config, row.field))
        return next((synonym.value for synonym in self._chain(row)), None)

    def describe_cluster(self) -> list[ConfigEntry]:
        """The cluster-wide dynamic settings alone, as Kafka describes the broker without a name."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        entries = []
        for name, text in self.cluster.items():
            row = BROKER_SETTINGS[name]
            value = _text_of(row, row.parse(text))
            chain = [ConfigSynonym(name, value, source)]
            entries.append(_entry(row, value, chain, read_only=False))
        return entries

    def _topic_chain(self, row: Setting) -> list[ConfigSynonym]:
        """What the broker's settings say of a topic setting, the strongest first.

        A chain that would be no more than the default of a coarser name (`log.retention.hours`)
        says nothing that the topic setting's own default does not, and is left out as in Kafka.
        """
        chain = [
            entry
            for synonym in row.synonyms
            for entry in self._chain(BROKER_SETTINGS[synonym.name])
        ]
        if chain[:1] and chain[0].source is ConfigSource.DEFAULT_CONFIG:
            return [entry for entry in chain if entry.name == row.synonyms[0].name]
        return chain

    def _chain(self, row: Setting) -> Iterator[ConfigSynonym]:
        layers = (
            (self.own, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for texts, source in layers:
            text = texts.get(row.name)
            if text is not None:
                yield ConfigSynonym(row.name, _text_of(row, row.parse(text)), source)
        if row.default is not None:
            yield ConfigSynonym(row.name, _text_of(row, row.default), ConfigSource.DEFAULT_CONFIG)


def check_dynamic(name: str, text: str, level: UpdateMode) -> None:
    """Raises `ConfigError` unless `name` may be set to `text` while running, at this level."""
    row = BROKER_SETTINGS[name]
    if row.update is UpdateMode.READ_ONLY:
        raise ConfigError(f"{name} cannot be changed while the broker runs: set it in its file")
    if row.update is UpdateMode.PER_BROKER and level is UpdateMode.CLUSTER_WIDE:
        raise ConfigError(f"{name} cannot be set for the whole cluster: set it for each broker")
    row.parse(text)


def _usable(texts: Mapping[str, str], level: UpdateMode, refused: list[str]) -> dict[str, str]:
    usable = {}
    for name, text in texts.items():
        try:
            check_dynamic(name, text, level)
        except ConfigError as e:
            refused.append(str(e))
        else:
            usable[name] = text
    return usable


def _text_of(row: Setting, value: Value) -> str | None:
    return None if row.sensitive else value_text(value)


def _entry(
    row: Setting, value: str | None, chain: list[ConfigSynonym], *, read_only: bool
) -> ConfigEntry:
    source = chain[0].source if chain else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(row.name, value, source, chain, read_only, row.sensitive, row.type, row.doc)
