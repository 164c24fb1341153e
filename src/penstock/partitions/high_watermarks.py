"""The high watermarks as they were last written to `replication-offset-checkpoint`.

A replica that is started again takes its high watermark from here; where it is missing or old, the
watermark begins lower and rises again as replicas fetch. Partitions with one replica need none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import TopicPartition
from penstock.log.checkpoints import read_checkpoint, write_checkpoint
from penstock.partitions.partition import Partition

log = logging.getLogger("penstock.partitions")

REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"


class HighWatermarks:
    def __init__(self, data_dir: str) -> None:
        self._path = os.path.join(data_dir, REPLICATION_OFFSET_CHECKPOINT)
        try:
            self._offsets = read_checkpoint(self._path)
        except CorruptRecord as e:
            log.warning("high watermarks begin at the log starts, the file is damaged: %s", e)
            self._offsets = {}
        self._changes = self._written = 0

    def get(self, tp: TopicPartition) -> int:
        return self._offsets.get(tp, 0)

    def forget(self, tp: TopicPartition) -> None:
        if self._offsets.pop(tp, None) is not None:
            self._changes += 1

    def checkpoint_task(self, partitions: Iterable[Partition]) -> Callable[[], None]:
        """Note the watermarks of `partitions`, which may have moved since the last time; what is
        returned writes them, in any thread.

        One such task at a time: they write the same file.
        """
        for partition in partitions:
            if len(partition.registration.replicas) > 1:
                self._set(partition.log.topic_partition, partition.known_watermark)
        changes, due = self._changes, {}
        if changes > self._written:
            due = dict(self._offsets)

        def write() -> None:
            if changes <= self._written:
                return
            try:
                write_checkpoint(self._path, due)
            except OSError as e:
                raise StorageError(f"cannot write {self._path}: {e}") from e
            self._written = changes

        return write

    def _set(self, tp: TopicPartition, offset: int) -> None:
        if self._offsets.get(tp) != offset:
            self._offsets[tp] = offset
            self._changes += 1
