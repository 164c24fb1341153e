"""A snapshot that is fetched from the leader: its pieces are written to a file, loaded as an image,
and installed.

Until it is installed neither the log nor the served image changes; one that is given up leaves no
file. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import PenstockError, invariant
from penstock.controlling.metadata_snapshots import Snapshot, SnapshotDownload
from penstock.metadata.image import MetadataImage
from penstock.raft.effects import InstallSnapshot, LoadSnapshot, WriteSnapshot

if TYPE_CHECKING:
    from penstock.controlling.quorum_driver import QuorumDriver

logger = logging.getLogger("penstock.controlling")


class _Loaded(NamedTuple):
    snapshot: Snapshot
    image: MetadataImage


class SnapshotFetching:
    def __init__(self, driver: QuorumDriver) -> None:
        self._driver = driver
        self._download: SnapshotDownload | None = None
        self._loaded: _Loaded | None = None

    def write(self, effect: WriteSnapshot) -> None:
        if effect.position == 0:
            self.drop()
            log = self._driver.log
            self._download = SnapshotDownload(log.dir, effect.id, log.encryption)
        download = self._download
        invariant(download is not None, "a snapshot's first piece is missing")
        assert download is not None
        download.take(effect.position, effect.chunk)

    async def load(self, effect: LoadSnapshot) -> None:
        """Read what was fetched, and report it to the core."""
        driver, download = self._driver, self._download
        assert download is not None
        try:
            snapshot = download.check(driver.log.encryption.keys)
            image = await driver.metadata.decoded(snapshot)
        except (PenstockError, OSError) as e:
            logger.error("a fetched snapshot of the metadata cannot be used: %s", e)
            if download is self._download:
                driver.event(driver.quorum.on_snapshot_load_failed)
            return
        if download is not self._download:
            return  # another one has been begun meanwhile
        self._loaded = _Loaded(snapshot, image)
        driver.event(
            lambda ms: driver.quorum.on_snapshot_loaded(
                effect.id, snapshot.kraft_version, snapshot.voters, ms
            )
        )

    async def install(self, effect: InstallSnapshot) -> None:
        download, loaded = self._download, self._loaded
        self._download = self._loaded = None
        assert download is not None
        assert loaded is not None
        await self._driver.in_thread(download.finish)
        flush = self._driver.log.begin_installation(loaded.snapshot)
        await self._driver.in_thread(flush.run)
        self._driver.log.installed(loaded.snapshot, flush)
        self._driver.metadata.take(loaded.snapshot, loaded.image)
        logger.info("the metadata was taken from a snapshot", extra={"offset": effect.id.offset})

    def drop(self) -> None:
        """Give up what was begun."""
        self._loaded = None
        if self._download is not None:
            self._download.abandon()
            self._download = None

    def begin_install(self, effect: InstallSnapshot) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_task(self.install(effect))
