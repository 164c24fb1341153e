"""Limits and settings drawn from the seed, small enough for a short run to meet what they bound.

A limit of the code is a constant of some module: `LIMITS` says in which package it is looked for.
Each has its own value among the choices, so that a part of the runs is as a node ships.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from .patches import modules

GIB = 1 << 30
KEY_ID = "sim"
"""What a part of the runs is encrypted by."""


class Limit(NamedTuple):
    package: str
    name: str
    choices: Sequence[int]
    """In the place of what the code says; 0 leaves it."""


LIMITS = (
    Limit("penstock.partitions", "TURN_BYTES_MAX", (300, 300, 2_000, 10_000, 0)),
    Limit("penstock.partitions", "WRITING_TURNS_MAX", (1, 2, 0)),
    Limit("penstock.log", "BACKGROUND_WRITE_BYTES_MIN", (1, 1, 400, 2_000)),
    Limit("penstock.log", "UNREAD_BYTES_MIN", (1, 200, 2_000, 0)),
    Limit("penstock.log", "TAIL_BYTES_MAX", (1, 300, 0)),
    Limit("penstock.log", "RECENT_CHECKS_MAX", (1, 5, 0)),
    Limit("penstock.log", "JOIN_BYTES_PER_BUFFER_MAX", (1, 200, 0)),
    Limit("penstock.log", "IOV_MAX", (1, 3, 0)),
    Limit("penstock.log", "WRITE_RETRY_PAUSE_MS", (50, 0)),
    Limit("penstock.log", "READ_AHEAD_BYTES", (100, 5_000, 0)),
    Limit("penstock.log", "SCAN_CHUNK_BYTES", (128, 1_000, 0)),
    Limit("penstock.log", "RECOVERY_CHUNK_BYTES", (1, 500, 0)),
    Limit("penstock.log", "INDEX_FLUSH_BATCHES", (3, 50, 0)),
    Limit("penstock.log", "UNFLUSHED_BATCHES_MAX", (10, 0)),
    Limit("penstock.log", "RETENTION_LOGS_PER_STEP", (1, 0)),
    Limit("penstock.log", "CLOSED_AT_ONCE", (1, 0)),
    Limit("penstock.log.cleaner_files", "CHUNK_BYTES", (100, 2_000, 0)),
    Limit("penstock.log.cleaner_filter", "MAP_ENTRY_BYTES", (1 << 18, 1 << 15, 0)),
    Limit("penstock.node", "REGIONS_MAX", (1, 4, 0)),
    Limit("penstock.node", "OPEN_FILES_MAX", (4, 20, 0)),
    Limit("penstock.net", "UNANSWERED_PRODUCES_MAX", (1, 3, 0)),
    Limit("penstock.net", "PIECE_BYTES", (500, 3_000, 0)),
    Limit("penstock.serving", "FOLLOWER_READ_BYTES_MAX", (1, 500, 5_000, 0)),
    Limit("penstock.serving", "EVICTION_IDLE_MS_MIN", (100, 5_000)),
    Limit("penstock.serving", "PARTITIONS_AT_ONCE_MAX", (1, 3, 0)),
)
SETTINGS: dict[str, Sequence[Any]] = {
    "log.segment.bytes": (6_000, 20_000, GIB),
    "offsets.topic.segment.bytes": (6_000, GIB),
    "transaction.state.log.segment.bytes": (6_000, GIB),
    "log.index.interval.bytes": (1, 300, 4_096),
    "log.index.size.max.bytes": (48, 10 << 20),
    "log.roll.ms": (1_000, 5_000, 600_000),
    "log.retention.check.interval.ms": (300, 2_000),
    "log.segment.delete.delay.ms": (0, 500, 60_000),
    "log.flush.offset.checkpoint.interval.ms": (500, 60_000),
    "log.cleaner.backoff.ms": (100, 1_000),
    "log.cleaner.min.cleanable.ratio": (0.0, 0.3),
    "log.cleaner.delete.retention.ms": (0, 2_000, 86_400_000),
    "fetch.max.bytes": (1_024, 10_000, 55 << 20),
    "replica.fetch.max.bytes": (1_000, 20_000, 1 << 20),
    "replica.fetch.response.max.bytes": (5_000, 10 << 20),
    "max.incremental.fetch.session.cache.slots": (0, 1, 1_000),
    "penstock.encryption.key.id": ("", "", KEY_ID),
}

FREED = ("segment.bytes", "log.segment.bytes", "offsets.topic.segment.bytes",
         "transaction.state.log.segment.bytes")  # fmt: skip
"""Settings that a user may not choose as small as runs want them."""


def draw_settings(rng: random.Random) -> dict[str, str]:
    return {name: str(rng.choice(choices)) for name, choices in SETTINGS.items()}


def draw_limits(rng: random.Random) -> dict[str, int]:
    """Choose the limits of the code for this process, and put them there; what was chosen."""
    drawn: dict[str, int] = {}
    for limit in LIMITS:
        value = rng.choice(limit.choices)
        found = [
            vars(module)
            for name, module in modules()
            if name.startswith(limit.package) and limit.name in vars(module)
        ]
        assert found, f"there is no {limit.name} in {limit.package} any more"
        if value:
            drawn[limit.name] = value
            for space in found:
                space[limit.name] = value
    return drawn


def free_settings() -> None:
    """Let the settings in `FREED` be anything."""
    from penstock.config.broker_config import BROKER_SETTINGS
    from penstock.config.log_config import TOPIC_SETTINGS

    for table in (BROKER_SETTINGS, TOPIC_SETTINGS):
        for name in FREED:
            if name in table.rows:
                table.rows[name] = dataclasses.replace(table.rows[name], rule=None)
