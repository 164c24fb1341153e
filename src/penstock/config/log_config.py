"""The topic settings: what governs one partition's log, each field a row of the table.

`LogConfig()` has Kafka's defaults. `log_config` lays a topic's own settings over the broker's
defaults, where a topic setting takes the first of its broker synonyms that has a value. Topics
without settings of their own share one object, so that many topics cost nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.config.table import (
    Between,
    ConfigError,
    Each,
    OneOf,
    Only,
    SettingType,
    Synonym,
    Table,
    Text,
    Value,
    at_least,
    setting,
)

if TYPE_CHECKING:
    from penstock.config.broker_config import BrokerConfig

KEY_ID = "penstock.encryption.key.id"
RETENTION_CONSUMED = "penstock.retention.consumed"
KEY_ID_PATTERN = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
"""Letters that mean nothing in an URL or a path."""
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
LONG_MAX = (1 << 63) - 1

BOOLEAN, STRING, INT, LONG = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.INT,
    SettingType.LONG,
)
_NO_TIER = "Penstock has no remote tier"
_THROTTLED = Each(r"\*|[0-9]+:[0-9]+", "of PARTITION:BROKER such as 0:1,1:2, or `*` for all")


def _from(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


@dataclass(frozen=True, slots=True)
class LogConfig:
    cleanup_policy: frozenset[str] = setting(
        SettingType.LIST,
        frozenset({"delete"}),
        "What happens to old segments: `delete` removes those beyond `retention.ms` or "
        "`retention.bytes`, `compact` keeps the latest value of each key, both do both, and an "
        "empty list keeps everything.",
        rule=OneOf(("compact", "delete")),
        synonyms=_from("log.cleanup.policy"),
    )
    compression_gzip_level: int = setting(
        INT,
        -1,
        "The level used where the broker compresses with gzip; -1 is the codec's own default.",
        rule=Between(1, 9, also=-1),
        synonyms=_from("compression.gzip.level"),
    )
    compression_lz4_level: int = setting(
        INT,
        9,
        "The level used where the broker compresses with lz4.",
        rule=Between(1, 17),
        synonyms=_from("compression.lz4.level"),
    )
    compression_type: str = setting(
        STRING,
        "producer",
        "How stored batches are compressed: `producer` keeps them as they came, anything else "
        "makes the broker compress again those that came otherwise.",
        rule=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        synonyms=_from("compression.type"),
    )
    compression_zstd_level: int = setting(
        INT,
        3,
        "The level used where the broker compresses with zstd.",
        rule=Between(-131072, 22),
        synonyms=_from("compression.zstd.level"),
    )
    delete_retention_ms: int = setting(
        LONG,
        86_400_000,
        "How long a compacted topic keeps a tombstone, so that a reader who started at offset 0 "
        "meets it in time.",
        rule=at_least(0),
        synonyms=_from("log.cleaner.delete.retention.ms"),
    )
    file_delete_delay_ms: int = setting(
        LONG,
        60_000,
        "How long a removed segment's files stay on disk (renamed to `.deleted`) for reads in "
        "progress.",
        rule=at_least(0),
        synonyms=_from("log.segment.delete.delay.ms"),
    )
    flush_messages: int = setting(
        LONG,
        LONG_MAX,
        "After how many messages the log is forced to disk; 1 forces it before every "
        "acknowledgement. Waiting requests share one fsync.",
        rule=at_least(1),
        synonyms=_from("log.flush.interval.messages"),
    )
    flush_ms: int = setting(
        LONG,
        LONG_MAX,
        "After how many milliseconds an unflushed message is forced to disk.",
        rule=at_least(0),
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Replicas whose copying is throttled on the follower's side, to "
        "`follower.replication.throttled.rate`: `*`, or a list of PARTITION:BROKER.",
        rule=_THROTTLED,
    )
    index_interval_bytes: int = setting(
        INT,
        4096,
        "About how many bytes of log lie between two entries of the offset index.",
        rule=at_least(0),
        synonyms=_from("log.index.interval.bytes"),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Replicas whose copying is throttled on the leader's side, to "
        "`leader.replication.throttled.rate`: `*`, or a list of PARTITION:BROKER.",
        rule=_THROTTLED,
    )
    local_retention_bytes: int = setting(
        LONG,
        -2,
        "How much of a tiered log stays on the local disk. Has no effect: there is no remote tier.",
        rule=at_least(-2),
        synonyms=_from("log.local.retention.bytes"),
    )
    local_retention_ms: int = setting(
        LONG,
        -2,
        "How long a tiered log stays on the local disk. Has no effect: there is no remote tier.",
        rule=at_least(-2),
        synonyms=_from("log.local.retention.ms"),
    )
    max_compaction_lag_ms: int = setting(
        LONG,
        LONG_MAX,
        "The longest time that a message of a compacted topic may wait for compaction.",
        rule=at_least(1),
        synonyms=_from("log.cleaner.max.compaction.lag.ms"),
    )
    max_message_bytes: int = setting(
        INT,
        1_048_588,
        "The largest record batch that is accepted, as it is stored (compressed if it is).",
        rule=at_least(0),
        synonyms=_from("message.max.bytes"),
    )
    message_timestamp_after_max_ms: int = setting(
        LONG,
        _HOUR_MS,
        "How far a message's create time may lie ahead of the broker's clock.",
        rule=at_least(0),
        synonyms=_from("log.message.timestamp.after.max.ms"),
    )
    message_timestamp_before_max_ms: int = setting(
        LONG,
        LONG_MAX,
        "How far a message's create time may lie behind the broker's clock.",
        rule=at_least(0),
        synonyms=_from("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_type: str = setting(
        STRING,
        "CreateTime",
        "Whose time a message carries: the producer's (`CreateTime`) or the broker's "
        "(`LogAppendTime`).",
        rule=OneOf(("CreateTime", "LogAppendTime")),
        synonyms=_from("log.message.timestamp.type"),
    )
    min_cleanable_dirty_ratio: float = setting(
        SettingType.DOUBLE,
        0.5,
        "The share of a compacted log that must be uncompacted before it is compacted again.",
        rule=Between(0, 1),
        synonyms=_from("log.cleaner.min.cleanable.ratio"),
    )
    min_compaction_lag_ms: int = setting(
        LONG,
        0,
        "How long a message of a compacted topic stays uncompacted at least.",
        rule=at_least(0),
        synonyms=_from("log.cleaner.min.compaction.lag.ms"),
    )
    min_insync_replicas: int = setting(
        INT,
        1,
        "How many in-sync replicas a write with acks=all needs.",
        rule=at_least(1),
        synonyms=_from("min.insync.replicas"),
    )
    penstock_encryption_key_id: str = setting(
        STRING,
        "",
        "The id of the key by which new segments are encrypted on the disk, at the node's "
        "`penstock.encryption.provider`; empty: they are not. A change counts for the next batch "
        "that is written, which begins a segment; what lies in older segments stays as it is until "
        "retention or compaction takes it. As a broker setting it is the default of all topics, "
        "internal ones too, and what the metadata is encrypted by; the node's file has to have it "
        "for the metadata of a new cluster to be encrypted from its first record on.",
        rule=Text(f"({KEY_ID_PATTERN})?", "the id of a key: letters, digits, `.`, `_` and `-`"),
        synonyms=_from("penstock.encryption.key.id"),
    )
    penstock_retention_consumed: str = setting(
        STRING,
        "none",
        "`all-groups` also deletes the segments that every group has consumed as a whole, whatever "
        "their age: every consumer group with a committed offset of the topic and every share "
        "group with a state for it. A topic that no group has consumed loses nothing. Looked at "
        "with `log.retention.check.interval.ms`; needs `cleanup.policy=delete`.",
        rule=OneOf(("none", "all-groups")),
    )
    preallocate: bool = setting(
        BOOLEAN,
        False,
        "Whether a new segment's file gets its whole size on disk at once. Has no effect: segment "
        "files grow as they are written.",
        synonyms=_from("log.preallocate"),
    )
    remote_log_copy_disable: bool = setting(
        BOOLEAN, False, "Whether a tiered topic stops copying.", rule=Only(False, _NO_TIER)
    )
    remote_log_delete_on_disable: bool = setting(
        BOOLEAN,
        False,
        "Whether switching tiering off deletes the remote data.",
        rule=Only(False, _NO_TIER),
    )
    remote_storage_enable: bool = setting(
        BOOLEAN, False, "Whether rolled segments go to a remote tier.", rule=Only(False, _NO_TIER)
    )
    retention_bytes: int = setting(
        LONG,
        -1,
        "The size of a partition beyond which its oldest segments are deleted; a negative number "
        "means no limit.",
        synonyms=_from("log.retention.bytes"),
    )
    retention_ms: int = setting(
        LONG,
        168 * _HOUR_MS,
        "The age beyond which segments are deleted; -1 means no limit.",
        rule=at_least(-1),
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
    )
    segment_bytes: int = setting(
        INT,
        1 << 30,
        "The size of a segment; retention and compaction work on whole segments.",
        rule=at_least(1 << 20),
        synonyms=_from("log.segment.bytes"),
    )
    segment_index_bytes: int = setting(
        INT,
        10 << 20,
        "The largest size of an index file; a segment is rolled when one is full.",
        rule=at_least(4),
        synonyms=_from("log.index.size.max.bytes"),
    )
    segment_jitter_ms: int = setting(
        LONG,
        0,
        "The most by which `segment.ms` is shortened at random, so that partitions do not all "
        "roll at once.",
        rule=at_least(0),
        synonyms=(
            Synonym("log.roll.jitter.ms"),
            Synonym("log.roll.jitter.hours", _HOUR_MS),
        ),
    )
    segment_ms: int = setting(
        LONG,
        168 * _HOUR_MS,
        "The age at which a segment is rolled even if it is not full.",
        rule=at_least(1),
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    )
    unclean_leader_election_enable: bool = setting(
        BOOLEAN,
        False,
        "Whether a replica outside the in-sync set may lead when no other is left, at the price "
        "of lost messages.",
        synonyms=_from("unclean.leader.election.enable"),
    )

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def deletes_consumed(self) -> bool:
        """Whether what all groups have consumed goes."""
        return self.penstock_retention_consumed != "none" and self.cleanup_policy == {"delete"}


TOPIC_SETTINGS = Table(
    "topic",
    LogConfig,
    absent={
        "message.downconversion.enable": "it went with the old message formats in Kafka 4.0; "
        "leave it out",
        "message.format.version": "it went with the old message formats in Kafka 4.0; leave it out",
        "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms",
    },
)


def log_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """A topic's stored settings over the broker's defaults.

    Settings that this release does not know or allow are left out: they were stored by another one,
    and the topic has to be served nevertheless. `check_topic_settings` is for new ones.
    """
    base = _broker_defaults(broker)
    return _over(base, TOPIC_SETTINGS.usable(overrides)) if overrides else base


def check_topic_settings(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises `ConfigError` unless a topic can have these settings."""
    config = _over(_broker_defaults(broker), TOPIC_SETTINGS.parse(overrides))
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) cannot be more than "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    if config.penstock_retention_consumed != "none" and config.cleanup_policy != {"delete"}:
        raise ConfigError(
            f"{RETENTION_CONSUMED} cannot be {config.penstock_retention_consumed!r}: it needs "
            "cleanup.policy=delete, and the topic has "
            f"{','.join(sorted(config.cleanup_policy)) or 'none'}"
        )
    if config.penstock_encryption_key_id and not broker.penstock_encryption_provider:
        raise ConfigError(
            f"penstock.encryption.key.id cannot be {config.penstock_encryption_key_id!r}: the node "
            "has no keys; set penstock.encryption.provider on every node first"
        )


def _over(base: LogConfig, values: dict[str, Any]) -> LogConfig:
    if "cleanup_policy" in values:
        values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    return replace(base, **values)


def broker_default(name: str, broker: BrokerConfig) -> Value:
    """What the broker's settings make of the topic setting `name`."""
    row = TOPIC_SETTINGS[name]
    for synonym in row.synonyms:
        value: Value = getattr(broker, synonym.name.replace(".", "_"))
        if value is None:
            continue
        if synonym.factor != 1 and isinstance(value, int):
            return value * synonym.factor if value >= 0 else -1
        return value
    return row.default


@lru_cache(maxsize=8)
def _broker_defaults(broker: BrokerConfig) -> LogConfig:
    values: dict[str, Any] = {row.field: broker_default(row.name, broker) for row in TOPIC_SETTINGS}
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    return LogConfig(**values)
