"""When snapshots of the metadata are written, and how, without blocking the loop.

One is due after `metadata.log.max.record.bytes.between.snapshots` of new records, or when something
has changed and `metadata.log.max.snapshot.interval.ms` have passed since the last one. The image is
frozen, which is quick, and encoded in steps with a pause after each; the fsync runs in a worker
thread. One snapshot is written at a time. One that fails is given up, logged, and tried again with
the next change after `RETRY_S`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.base.errors import StorageError
from penstock.config.layers import BrokerSettings
from penstock.controlling.metadata_snapshots import SnapshotWriter
from penstock.metadata.snapshot import snapshot_records
from penstock.raft.types import OffsetAndEpoch

if TYPE_CHECKING:
    from penstock.controlling.quorum_driver import QuorumDriver

logger = logging.getLogger("penstock.controlling")

STEP_PAUSE_S = 0.001
RETRY_S = 60.0


class SnapshotWriting:
    def __init__(self, driver: QuorumDriver, settings: BrokerSettings) -> None:
        self._driver = driver
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._last_s = self._loop.time()
        self._not_before_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Records have been applied: write a snapshot if one is due."""
        if self._task is not None or self._driver.failure is not None:
            return
        now_s = self._loop.time()
        if now_s < self._not_before_s:
            return
        config = self._settings.config
        written = self._driver.metadata.bytes_since_snapshot
        interval_s = config.metadata_log_max_snapshot_interval_ms / 1000
        if written >= config.metadata_log_max_record_bytes_between_snapshots or (
            written and interval_s and now_s - self._last_s >= interval_s
        ):
            self._task = self._loop.create_task(self._write())
        elif written and interval_s and self._timer is None:
            self._timer = self._loop.call_at(self._last_s + interval_s, self._interval_over)

    def _interval_over(self) -> None:
        self._timer = None
        self.check()

    async def _write(self) -> None:
        try:
            await self._write_one()
            self._last_s = self._loop.time()
        except StorageError as e:
            logger.error("a snapshot of the metadata could not be written: %s", e)
            self._not_before_s = self._loop.time() + RETRY_S
        finally:
            self._task = None

    async def _write_one(self) -> None:
        driver, metadata = self._driver, self._driver.metadata
        await driver.until_idle()
        offset = metadata.applied_offset
        id_ = OffsetAndEpoch(offset, driver.quorum.epoch_at(offset - 1))
        timestamp_ms = metadata.last_timestamp_ms
        writer = SnapshotWriter(
            driver.log.dir,
            id_,
            first=driver.quorum.snapshot_records(id_, timestamp_ms, timestamp_ms),
            last_timestamp_ms=timestamp_ms,
            records=snapshot_records(metadata.image.frozen()),
            metadata_version=metadata.image.metadata_version,
            encryption=driver.log.encryption,
        )
        metadata.bytes_since_snapshot = 0
        driver.log.begin_segment()
        try:
            while not writer.step():
                await asyncio.sleep(STEP_PAUSE_S)
        except BaseException:
            writer.abandon()
            raise
        await driver.in_thread(writer.finish)
        await driver.until_idle()
        if driver.failure is None and metadata.applied_offset >= offset:
            driver.quorum.on_snapshot_written(id_)
            driver.quorum.on_log_trimmed(driver.log.trim().offset)
            logger.info("wrote a snapshot of the metadata", extra={"offset": offset})

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
