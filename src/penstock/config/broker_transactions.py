"""Broker settings of transactions and of the topic that keeps their states."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.table import Importance, SettingType, UpdateMode, at_least, setting


@dataclass(frozen=True)
class TransactionTopicSettings:
    transaction_state_log_num_partitions: int = setting(
        SettingType.INT,
        50,
        "How many partitions `__transaction_state` gets when it is created; each transactional id "
        "belongs to one of them, so the number must not change afterwards.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_replication_factor: int = setting(
        SettingType.SHORT,
        3,
        "How many replicas the partitions of `__transaction_state` get when it is created; as many "
        "as there are brokers where those are fewer.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_min_isr: int = setting(
        SettingType.INT,
        2,
        "How many replicas must have a write to `__transaction_state` before it counts; its "
        "`min.insync.replicas` when it is created.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_segment_bytes: int = setting(
        SettingType.INT,
        104_857_600,
        "The segment size of `__transaction_state`: small enough for quick compaction.",
        rule=at_least(1_048_576),
        importance=Importance.HIGH,
    )


@dataclass(frozen=True)
class TransactionSettings(TransactionTopicSettings):
    transaction_max_timeout_ms: int = setting(
        SettingType.INT,
        900_000,
        "The longest transaction timeout that a producer may ask for; an open transaction keeps "
        "read_committed consumers waiting for as long.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    transactional_id_expiration_ms: int = setting(
        SettingType.INT,
        604_800_000,
        "After how long without a transaction a transactional id is forgotten.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        SettingType.INT,
        10_000,
        "How long to wait before a transaction that was open for too long and could not be aborted "
        "is tried again; at first it is aborted as soon as its time is up.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        SettingType.INT,
        3_600_000,
        "How often expired transactional ids are looked for.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    transaction_partition_verification_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether a partition's leader asks the transaction's coordinator, before the first batch "
        "of a transaction, if the partition is part of it.",
        importance=Importance.LOW,
        update=UpdateMode.CLUSTER_WIDE,
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        SettingType.INT,
        20,
        "The pause before a partition's leader asks again to put the partition into a transaction "
        "whose predecessor is still being ended.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        SettingType.INT,
        100,
        "How long a partition's leader goes on asking, before the client is told to try again.",
        rule=at_least(0),
        importance=Importance.HIGH,
    )
