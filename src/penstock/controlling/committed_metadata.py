"""The image that the node serves from: the metadata log below the high watermark.

Committed batches are read back from the log and applied in order, at most `SLICE_BYTES` of them in
one turn of the loop, so that a node that has much to catch up with still answers; listeners are
called after each slice with what it changed. Records that this node decided as controller are not
decoded again.

Invariants: records are applied once, in order, and never before they are committed; `image` is one
object for the node's whole life, also when a snapshot replaces its contents. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.base.errors import StorageError
from penstock.base.ids import Uuid
from penstock.controlling.metadata_log import MetadataLog
from penstock.controlling.metadata_snapshots import Snapshot
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, Partition
from penstock.metadata.records import MetadataRecord, decode_batch

logger = logging.getLogger("penstock.controlling")

SLICE_BYTES = 32 * 1024
SNAPSHOT_BATCHES_PER_SLICE = 16


class Decided(NamedTuple):
    """Records that this node appended as controller."""

    end_offset: int
    records: list[MetadataRecord]
    size_bytes: int
    timestamp_ms: int
    made: Sequence[Partition] = ()
    """The partitions of their PartitionRecords, made before they are applied, all at once."""


class CommittedMetadata:
    def __init__(self, log: MetadataLog, on_applied: Callable[[], None]) -> None:
        """`on_applied` is called after each slice, after its listeners."""
        self.image = MetadataImage()
        self.deleted_topics: dict[Uuid, None] | None = {}
        """The topics whose deletion was seen, while the node starts: their directories may have
        outlived them.
        """
        self.applied_offset = 0
        self.last_timestamp_ms = 0
        """Of the last record that was applied."""
        self.bytes_since_snapshot = 0
        self.decided: dict[int, Decided] = {}
        """By the offset of the first record; the log has the same."""
        self._log = log
        self._on_applied = on_applied
        self._listeners: list[Callable[[MetadataDelta], None]] = []
        self.failure: str | None = None
        """Why the node no longer follows the metadata: then nothing more is applied."""
        self.on_failed: Callable[[str], None] | None = None
        """Called when a change cannot be followed: the node has to end."""
        self._target = 0
        self._under_way = False
        if log.snapshot is not None:
            self._load_stored(log.snapshot)

    def on_committed(self, listener: Callable[[MetadataDelta], None]) -> None:
        """Have `listener` called after committed records have changed the image."""
        self._listeners.append(listener)

    # -- records -------------------------------------------------------------------------------

    def advance(self, high_watermark: int) -> None:
        """Apply what lies below `high_watermark`, now or in the next turns of the loop."""
        self._target = max(self._target, high_watermark)
        if not self._under_way and self.failure is None:
            self._go_on()

    def advance_now(self, high_watermark: int) -> None:
        """Apply all of it before returning; used before the node serves."""
        self._target = max(self._target, high_watermark)
        while self.applied_offset < self._target and self.failure is None:
            self._apply_slice()

    def _go_on(self) -> None:
        self._under_way = False
        if self.applied_offset < self._target:
            self._apply_slice()
        if self.applied_offset < self._target and self.failure is None:
            self._under_way = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _apply_slice(self) -> None:
        delta = MetadataDelta()
        room = SLICE_BYTES
        try:
            while room > 0 and self.applied_offset < self._target:
                decided = self.decided.pop(self.applied_offset, None)
                if decided is not None:
                    room -= self._apply_decided(decided, delta)
                else:
                    room -= self._apply_stored(room, delta)
        except StorageError:
            raise  # the log could not be read: the driver of the quorum deals with it
        except Exception as e:
            self._fail(e)
            return
        self._notify(delta)

    def _notify(self, delta: MetadataDelta) -> None:
        if self.deleted_topics is not None:
            self.deleted_topics |= dict.fromkeys(delta.deleted_topics)
        for listener in self._listeners:
            try:
                listener(delta)
            except Exception as e:
                self._fail(e)
                return
        self._on_applied()

    def _fail(self, error: Exception) -> None:
        """The image no longer agrees with what the cluster has decided."""
        self.failure = (
            f"the metadata up to offset {self.applied_offset} cannot be followed "
            f"({type(error).__name__}: {error}): restart the node"
        )
        logger.critical("%s", self.failure, exc_info=error)
        if self.on_failed is not None:
            self.on_failed(self.failure)

    def _apply_decided(self, decided: Decided, delta: MetadataDelta) -> int:
        self.image.apply(decided.records, delta, decided.made)
        self.applied_offset = decided.end_offset
        self.last_timestamp_ms = decided.timestamp_ms
        self.bytes_since_snapshot += decided.size_bytes
        return decided.size_bytes

    def _apply_stored(self, max_bytes: int, delta: MetadataDelta) -> int:
        """Apply what one read of the log gives; its size."""
        size = 0
        data = self._log.read(self.applied_offset, self._target, max_bytes)
        for header, batch in self._log.split(data):
            self.image.apply(decode_batch(batch), delta)
            self.applied_offset = header.last_offset + 1
            self.last_timestamp_ms = header.max_timestamp
            size += header.size
            if self.applied_offset in self.decided:
                break
        self.bytes_since_snapshot += size
        return size

    # -- snapshots -----------------------------------------------------------------------------

    def _load_stored(self, snapshot: Snapshot) -> None:
        """Before the node serves: all at once."""
        delta = MetadataDelta()
        for batch in snapshot.batches:
            self.image.apply(decode_batch(batch), delta)
        self._at(snapshot)

    async def decoded(self, snapshot: Snapshot) -> MetadataImage:
        """The image of a fetched snapshot; other work runs in between."""
        image, delta = MetadataImage(), MetadataDelta()
        for number, batch in enumerate(snapshot.batches):
            image.apply(decode_batch(batch), delta)
            if number % SNAPSHOT_BATCHES_PER_SLICE == 0:
                await asyncio.sleep(0)
        return image

    def take(self, snapshot: Snapshot, image: MetadataImage) -> None:
        """A fetched snapshot's contents replace the image's."""
        self.decided.clear()
        changed = self.image.replace_with(image)
        self._at(snapshot)
        self._notify(changed)

    def _at(self, snapshot: Snapshot) -> None:
        snapshot.batches.clear()  # their contents are in the image now
        self.applied_offset = snapshot.id.offset
        self._target = max(self._target, snapshot.id.offset)
        self.last_timestamp_ms = snapshot.last_timestamp_ms
        self.bytes_since_snapshot = 0
