"""Encryption at rest in the life of a node: keys at the start, and rotations while it runs.

A start has all data keys unwrapped before logs are opened, in a worker thread, so that no log waits
for a provider on the loop. From time to time the data keys that older versions have wrapped are
wrapped anew (`log.rewrapping`). Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.base.errors import StorageError
from penstock.config.broker_config import BrokerConfig
from penstock.keys.data_keys import DataKeys
from penstock.log import rewrapping
from penstock.log.manager import LogManager
from penstock.log.rewrapping import AT_ONCE, Prepared
from penstock.observe.logs import Alarm
from penstock.observe.metrics import Reading
from penstock.observe.table import (
    ENCRYPTED_SEGMENTS,
    ENCRYPTION_KEY_FAILURES,
    ENCRYPTION_KEYS_SPARE,
)

log = logging.getLogger("penstock.node")

SERIES_MAX: Final = 64
"""Key ids with versions that metrics tell apart; the others are `other`."""


async def prepare_keys(keys: DataKeys, logs: LogManager, config: BrokerConfig) -> None:
    """Have the keys of what is stored, and some for what will be, as far as they can be had."""
    if keys.provider is None or keys.provider.is_local:
        return
    found = await asyncio.to_thread(lambda: list(rewrapping.key_files(partition_dirs(logs))))
    try:
        await asyncio.to_thread(keys.prefetch, [one.key_file.wrapped for one in found])
        if config.penstock_encryption_key_id:
            await asyncio.to_thread(keys.fill, config.penstock_encryption_key_id)
    except StorageError as e:
        log.error("keys cannot be had yet: %s", e)


def partition_dirs(logs: LogManager) -> list[str]:
    return [os.path.join(logs.data_dir, str(tp)) for tp in logs.partitions()]


class Rewrapping:
    """Wraps data keys anew when their KEK has a newer version."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._alarm = Alarm(log)

    async def run_once(self) -> None:
        keys = self._logs.env.keys
        if keys.provider is None:
            return
        try:
            found = await asyncio.to_thread(rewrapping.outdated, partition_dirs(self._logs), keys)
            done = 0
            for at in range(0, len(found), AT_ONCE):
                some = await asyncio.to_thread(rewrapping.prepare, found[at : at + AT_ONCE], keys)
                done += await self._put(some)
        except (StorageError, OSError) as e:
            self._alarm.raised("rewrap", "data keys cannot be wrapped anew", reason=str(e))
            return
        if done:
            log.info("data keys were wrapped by a newer version", extra={"key_files": done})

    async def _put(self, some: list[Prepared]) -> int:
        replaced = [each for each in some if rewrapping.put(each)]
        new_of = {each.found.path: each.new for each in replaced}
        for opened in self._logs.opened():
            for segment in opened.segments:
                new = new_of.get(segment.key_path)
                if new is not None and segment.key_file is not None:
                    segment.key_file = new
        await asyncio.to_thread(rewrapping.sync, replaced)
        return len(replaced)


def encryption_metrics(logs: LogManager) -> Iterator[Reading]:
    """How many segments of open logs each version of a key has wrapped the keys of."""
    keys = logs.env.keys
    yield ENCRYPTION_KEY_FAILURES.one(keys.failures)
    yield ENCRYPTION_KEYS_SPARE.one(keys.spare)
    counts: Counter[tuple[str, str]] = Counter()
    if keys.provider is not None:
        for opened in logs.opened():
            for segment in opened.segments:
                if segment.key_file is not None:
                    key_id, version, _ = segment.key_file.wrapped
                    counts[key_id, str(version)] += 1
    shown = counts.most_common(SERIES_MAX)
    samples = [ENCRYPTED_SEGMENTS.sample(count, *labels) for labels, count in shown]
    rest = counts.total() - sum(count for _, count in shown)
    if rest:
        samples.append(ENCRYPTED_SEGMENTS.sample(rest, "other", "other"))
    yield Reading(ENCRYPTED_SEGMENTS, samples)
