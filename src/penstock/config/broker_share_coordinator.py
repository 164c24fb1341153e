"""Broker settings of the share coordinator and of the topic that keeps the states it persists."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.table import Between, Importance, SettingType, at_least, setting


@dataclass(frozen=True)
class ShareCoordinatorSettings:
    share_coordinator_state_topic_num_partitions: int = setting(
        SettingType.INT,
        50,
        "How many partitions `__share_group_state` gets when it is created; each share-partition "
        "belongs to one of them, so the number must not change afterwards.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        SettingType.SHORT,
        3,
        "How many replicas the partitions of `__share_group_state` get when it is created; as many "
        "as there are brokers where those are fewer.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_min_isr: int = setting(
        SettingType.SHORT,
        2,
        "How many replicas must have a write to `__share_group_state` before it counts; its "
        "`min.insync.replicas` when it is created.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        SettingType.INT,
        104_857_600,
        "The segment size of `__share_group_state`: what has been pruned takes up to one segment.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        SettingType.INT,
        500,
        "After how many updates of a share-partition its whole state is written, so that the "
        "records before can be pruned.",
        rule=Between(0, 500),
    )
    share_coordinator_write_timeout_ms: int = setting(
        SettingType.INT,
        5_000,
        "How long a write waits for the replicas of `__share_group_state` before it fails with an "
        "error after which it is tried again.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        SettingType.INT,
        300_000,
        "How often the records of `__share_group_state` that snapshots have made superfluous are "
        "deleted.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        SettingType.INT,
        300_000,
        "How old the snapshot of a share-partition that nobody changes may become before it is "
        "written again, so that the records before it can be pruned.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
