"""The broker settings of storage: where logs lie, the defaults of topic settings, flushing,
cleaning.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import Any

from penstock.config.log_config import TOPIC_SETTINGS
from penstock.config.table import (
    Importance,
    OneOf,
    SettingType,
    UpdateMode,
    at_least,
    setting,
)


def topic_default(name: str) -> Any:
    """The default of topic setting `name`, with the type and bounds of that row."""
    row = TOPIC_SETTINGS[name]
    default = tuple(sorted(row.default)) if isinstance(row.default, frozenset) else row.default
    row = dataclasses.replace(
        row,
        default=default,
        synonyms=(),
        doc=f"The default of the topic setting `{name}`. {row.doc}",
        update=UpdateMode.CLUSTER_WIDE,
    )
    return dataclasses.field(default=default, metadata={"setting": row})


def topic_default_in(unit: str, name: str, default: int | None, low: int | None = None) -> Any:
    """A default of topic setting `name` in another unit, or the first of several."""
    return setting(
        SettingType.LONG if unit == "milliseconds" else SettingType.INT,
        default,
        f"The default of the topic setting `{name}` in {unit}. Where several units are set, the "
        "finest counts.",
        rule=None if low is None else at_least(low),
        update=UpdateMode.CLUSTER_WIDE if unit == "milliseconds" else UpdateMode.READ_ONLY,
        importance=Importance.HIGH,
    )


@dataclass(frozen=True)
class LogSettings:
    log_dir: str = setting(
        SettingType.STRING,
        "penstock-data",
        "The data folder, used when `log.dirs` is not set.",
        importance=Importance.HIGH,
    )
    log_dirs: tuple[str, ...] | None = setting(
        SettingType.LIST,
        None,
        "The data folder; one, since a machine with several disks runs several nodes.",
        importance=Importance.HIGH,
    )

    compression_gzip_level: int = topic_default("compression.gzip.level")
    compression_lz4_level: int = topic_default("compression.lz4.level")
    compression_type: str = topic_default("compression.type")
    penstock_encryption_key_id: str = topic_default("penstock.encryption.key.id")
    compression_zstd_level: int = topic_default("compression.zstd.level")
    log_cleaner_delete_retention_ms: int = topic_default("delete.retention.ms")
    log_cleaner_max_compaction_lag_ms: int = topic_default("max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = topic_default("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = topic_default("min.compaction.lag.ms")
    log_cleanup_policy: tuple[str, ...] = topic_default("cleanup.policy")
    log_flush_interval_messages: int = topic_default("flush.messages")
    log_index_interval_bytes: int = topic_default("index.interval.bytes")
    log_index_size_max_bytes: int = topic_default("segment.index.bytes")
    log_local_retention_bytes: int = topic_default("local.retention.bytes")
    log_local_retention_ms: int = topic_default("local.retention.ms")
    log_message_timestamp_after_max_ms: int = topic_default("message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: int = topic_default("message.timestamp.before.max.ms")
    log_message_timestamp_type: str = topic_default("message.timestamp.type")
    log_preallocate: bool = topic_default("preallocate")
    log_retention_bytes: int = topic_default("retention.bytes")
    log_segment_bytes: int = topic_default("segment.bytes")
    log_segment_delete_delay_ms: int = topic_default("file.delete.delay.ms")
    message_max_bytes: int = topic_default("max.message.bytes")
    min_insync_replicas: int = topic_default("min.insync.replicas")
    unclean_leader_election_enable: bool = topic_default("unclean.leader.election.enable")

    log_retention_ms: int | None = topic_default_in("milliseconds", "retention.ms", None)
    log_retention_minutes: int | None = topic_default_in("minutes", "retention.ms", None)
    log_retention_hours: int = topic_default_in("hours", "retention.ms", 168)
    log_roll_ms: int | None = topic_default_in("milliseconds", "segment.ms", None, 1)
    log_roll_hours: int = topic_default_in("hours", "segment.ms", 168, 1)
    log_roll_jitter_ms: int | None = topic_default_in("milliseconds", "segment.jitter.ms", None, 0)
    log_roll_jitter_hours: int = topic_default_in("hours", "segment.jitter.ms", 0, 0)
    log_flush_interval_ms: int | None = topic_default_in("milliseconds", "flush.ms", None, 0)

    log_flush_scheduler_interval_ms: int = setting(
        SettingType.LONG,
        (1 << 63) - 1,
        "The default of `log.flush.interval.ms`. Kafka also checks for due flushes only this "
        "often; here each flush has its own timer.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        SettingType.INT,
        60_000,
        "How often the recovery points, from which a restart after a crash scans, and the log "
        "start offsets are written.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    log_retention_check_interval_ms: int = setting(
        SettingType.LONG,
        300_000,
        "How often retention looks for segments to delete.",
        rule=at_least(1),
    )
    log_cleaner_enable: bool = setting(
        SettingType.BOOLEAN, True, "Whether logs with `cleanup.policy=compact` are compacted."
    )
    log_cleaner_threads: int = setting(
        SettingType.INT,
        1,
        "How many logs are compacted at the same time, each in a child process of its own; they "
        "share `log.cleaner.dedupe.buffer.size` and `log.cleaner.io.max.bytes.per.second`.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        SettingType.DOUBLE,
        sys.float_info.max,
        "How much compaction may read and write together per second.",
        rule=at_least(1),
        update=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        SettingType.LONG,
        128 << 20,
        "How much memory compaction may use for its map of keys.",
        rule=at_least(1 << 20),
        update=UpdateMode.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = setting(
        SettingType.LONG,
        15_000,
        "How long compaction waits before it looks again when nothing was to be done.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    producer_id_expiration_ms: int = setting(
        SettingType.INT,
        86_400_000,
        "After how long an idle producer's sequence numbers are forgotten.",
        rule=at_least(1),
        update=UpdateMode.CLUSTER_WIDE,
        importance=Importance.LOW,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        SettingType.INT,
        600_000,
        "How often idle producers are looked for.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    penstock_record_validation: str = setting(
        SettingType.STRING,
        "compressed",
        "How deep a produced batch is checked: `header` checks length, checksum, counts and "
        "times of the batch; `compressed` also unpacks compressed batches and walks their "
        "records, so that none is stored that consumers cannot read; `full` walks the records of "
        "every batch, as Kafka does.",
        rule=OneOf(("header", "compressed", "full")),
        update=UpdateMode.CLUSTER_WIDE,
    )
