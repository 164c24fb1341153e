"""Open a partition directory: after a clean stop without scanning, after an unclean one with
recovery.

After a clean stop segments are taken as they lie: names and sizes from the directory, the end
offset from the last index entry on, producers from the newest snapshot. After an unclean stop
everything from the recovery point on is checked (`recovery`); the work is bounded by what was not
flushed, rounded up to a segment. In both cases a missing or damaged index is rebuilt from the data,
and files that an interrupted swap or deletion left behind are dealt with (`replacement`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import TopicPartition, Uuid
from penstock.config.log_config import LogConfig
from penstock.log.environment import LogEnvironment
from penstock.log.epoch_cache import LeaderEpochFileCache
from penstock.log.files import TMP_SUFFIX, unlink_if_exists
from penstock.log.log import Log
from penstock.log.log_segments import LogSegments
from penstock.log.producer_replay import replay_producers
from penstock.log.producer_state import ProducerStateManager
from penstock.log.recovery import SegmentRecovery
from penstock.log.replacement import finish_interrupted_swaps
from penstock.log.segment import LogSegment
from penstock.log.segment_files import (
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from penstock.log.segment_keys import attach_or_set_aside

logger = logging.getLogger("penstock.log")

OFFSET_MAX = 2**63 - 1
_BESIDE_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, KEY_SUFFIX)


def load_log(
    topic_partition: TopicPartition,
    log_dir: str,
    config: LogConfig,
    env: LogEnvironment,
    *,
    topic_id: Uuid | None = None,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    clean: bool = False,
) -> Log:
    """The log in `log_dir` (an empty directory makes an empty log), ready for use."""
    try:
        return _Loader(
            topic_partition, log_dir, config, env, log_start_offset, recovery_point, clean
        ).load(topic_id)
    except OSError as e:
        raise StorageError(f"cannot open the log {log_dir}: {e}") from e


@dataclass(slots=True)
class _Loader:
    topic_partition: TopicPartition
    log_dir: str
    config: LogConfig
    env: LogEnvironment
    log_start_offset: int
    recovery_point: int
    clean: bool
    broken: str | None = None

    def load(self, topic_id: Uuid | None) -> Log:
        producers = ProducerStateManager(self.log_dir, self.env.producer_id_expiration_ms)
        epochs = LeaderEpochFileCache(self.log_dir)
        segments = LogSegments(self._open_segments(topic_id))
        if not epochs.load():
            self._read_epochs(segments, epochs)
        if len(segments):
            self.log_start_offset = max(self.log_start_offset, segments[0].base_offset)
            producers.find_snapshots()
        if len(segments) and self.clean:
            self._check_active(segments.active)
        if len(segments) and not self.clean:
            for segment in segments.from_offset(self.recovery_point):
                if segment.size and not segment.key_id:
                    self._attach_key(segment, topic_id)  # or what it needs is missing
            self._recover(segments, producers, epochs)
        end = self._end_offset(segments)
        if not len(segments):
            segments.add(self._create(end))
        producers.remove_stray_snapshots(set(segments.base_offsets))
        if self.clean or producers.end_offset != end:
            self._load_producers(producers, segments, end)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(self.log_start_offset)
        log = Log(
            self.topic_partition,
            self.log_dir,
            self.config,
            self.env,
            topic_id=topic_id,
            segments=segments,
            producers=producers,
            epochs=epochs,
            log_start_offset=self.log_start_offset,
            log_end_offset=end,
            recovery_point=end if self.clean else min(self.recovery_point, end),
        )
        if self.broken is not None:
            log.health.fail_for_good(self.broken)
        return log

    def _open_segments(self, topic_id: Uuid | None) -> list[LogSegment]:
        names = os.listdir(self.log_dir)
        if finish_interrupted_swaps(self.log_dir, names, self.env):
            names = os.listdir(self.log_dir)
        present = set(names)
        sealed = bool(self.config.penstock_encryption_key_id) or any(
            name.endswith(KEY_SUFFIX) for name in names
        )
        segments = []
        for name in sorted(names):
            stem, suffix = os.path.splitext(name)
            if suffix in _BESIDE_SUFFIXES and stem + LOG_SUFFIX not in present:
                logger.warning("removing %s/%s, which has no segment", self.log_dir, name)
                unlink_if_exists(f"{self.log_dir}/{name}")
            elif suffix == TMP_SUFFIX:
                unlink_if_exists(f"{self.log_dir}/{name}")
            elif suffix == LOG_SUFFIX and stem.isdecimal():
                segment = self._open_segment(int(stem), name)
                if not segment.size:
                    unlink_if_exists(segment.key_path)
                elif sealed or stem + KEY_SUFFIX in present:
                    self._attach_key(segment, topic_id)
                if stem + INDEX_SUFFIX not in present or stem + TIME_INDEX_SUFFIX not in present:
                    self._rebuild(segment, "an index file is missing")
                segments.append(segment)
        return segments

    def _open_segment(self, base_offset: int, name: str) -> LogSegment:
        stat = os.stat(f"{self.log_dir}/{name}")
        return LogSegment(
            self.log_dir,
            base_offset,
            self.env.files,
            self.env.indexes,
            size=stat.st_size,
            created_ms=int(stat.st_mtime * 1000),
        )

    def _attach_key(self, segment: LogSegment, topic_id: Uuid | None) -> None:
        never_flushed = segment.base_offset >= self.recovery_point
        attach_or_set_aside(
            segment,
            self.env.keys,
            self.topic_partition,
            topic_id,
            may_be_lost=not self.clean and never_flushed,
        )

    def _read_epochs(self, segments: LogSegments, epochs: LeaderEpochFileCache) -> None:
        """Find the epochs in the batches; recovery finds those behind the recovery point."""
        for segment in segments:
            try:
                for header in segment.headers():
                    if not self.clean and header.base_offset >= self.recovery_point:
                        return
                    if header.partition_leader_epoch > epochs.latest_epoch:
                        epochs.restore(header.partition_leader_epoch, header.base_offset)
            except CorruptRecord as e:
                logger.error("leader epochs of %s cannot be read: %s", segment.file.path, e)

    def _rebuild(self, segment: LogSegment, why: str) -> None:
        if not self.clean and segment.base_offset >= self.recovery_point:
            return  # Recovery will rebuild its indexes.
        logger.warning("rebuilding the indexes of %s: %s", segment.file.path, why)
        try:
            segment.rebuild_indexes(self.config.index_interval_bytes)
        except CorruptRecord as e:
            logger.error("log %s holds damaged data: %s", self.topic_partition, e)

    def _create(self, base_offset: int) -> LogSegment:
        return LogSegment.create(
            self.log_dir,
            base_offset,
            self.env.files,
            self.env.indexes,
            now_ms=self.env.clock.now_ms(),
        )

    def _recover(
        self, segments: LogSegments, producers: ProducerStateManager, epochs: LeaderEpochFileCache
    ) -> None:
        """Check everything from the recovery point on; nothing is kept behind a torn end.

        A segment that ends before the next one begins has lost its end: only compaction leaves such
        gaps, and it sees to it that the recovery point is beyond them.
        """
        unflushed = segments.from_offset(self.recovery_point)
        torn = False
        checked = cut = 0
        end = max(self.recovery_point, unflushed[0].base_offset) if unflushed else 0
        for segment in unflushed:
            if torn or segment.base_offset > end >= self.recovery_point:
                torn = True
                self._drop(segments, segment, producers, "which lies behind a torn end")
                continue
            if segment is not unflushed[0] and not segment.size and segment.base_offset < end:
                self._drop(segments, segment, producers, "which a roll that failed has left")
                continue
            check = SegmentRecovery(
                segment,
                producers,
                epochs,
                self.recovery_point,
                self.config.index_interval_bytes,
                _begin_of_next(unflushed, segment),
            )
            if segment is unflushed[0]:
                # The data says it: a truncation that is not on the disk may have changed them.
                epochs.truncate_from_end(check.next_offset)
                self._load_producers(producers, segments, check.next_offset)
            producers.end_offset = max(producers.end_offset, check.next_offset)
            self._put_off_if_full(partial(producers.take_snapshot, check.next_offset))
            checked += segment.size - check.position
            check.run()
            cut += check.cut_bytes
            producers.end_offset = max(producers.end_offset, check.next_offset)
            end = check.next_offset
            torn = check.cut_bytes > 0 and end != check.limit
            if check.broken is not None and segment is unflushed[-1]:
                self.broken = check.broken
            closed = segment is not unflushed[-1]
            done = segment.on_become_inactive if closed else segment.flush_indexes
            self._put_off_if_full(done)
        tell = logger.info if checked else logger.debug
        tell("recovered %s: %d bytes checked, %d cut", self.topic_partition, checked, cut)

    def _put_off_if_full(self, write: Callable[[], None]) -> None:
        """Do what only saves time at the next start; on a full disk the log must still
        be readable.
        """
        try:
            write()
        except OSError as e:
            logger.warning("cannot write in %s, going on without: %s", self.log_dir, e)

    def _drop(
        self, segments: LogSegments, segment: LogSegment, producers: ProducerStateManager, why: str
    ) -> None:
        logger.warning("removing %s, %s", segment.file.path, why)
        segments.remove(segment)
        producers.delete_snapshot(segment.base_offset)
        segment.delete()

    def _check_active(self, active: LogSegment) -> None:
        """Check that the active segment is as a clean stop leaves it."""
        try:
            active.offset_index.sanity_check(active.size)
            active.time_index.sanity_check()
            active.next_offset()
        except CorruptRecord as e:
            self._rebuild(active, str(e))
            try:
                active.next_offset()
            except CorruptRecord as e:
                logger.error("%s is damaged in spite of a clean stop: %s", self.log_dir, e)
                self.clean = False

    def _load_producers(
        self, producers: ProducerStateManager, segments: LogSegments, end: int
    ) -> None:
        producers.load(self.log_start_offset, end, self.env.clock.now_ms())
        try:
            replay_producers(producers, segments, end)
        except CorruptRecord as e:
            # Without the whole history of the producers a duplicate could pass for new.
            self.broken = f"producer state cannot be rebuilt: {e}"
            producers.end_offset = end

    def _end_offset(self, segments: LogSegments) -> int:
        """The offset after the last batch; segments that end below the log start are dropped."""
        if not len(segments):
            return self.log_start_offset
        end = segments.active.next_offset()
        if end < self.recovery_point:
            logger.error(
                "log %s ends at %d, but was flushed up to %d: data is missing",
                self.topic_partition,
                end,
                self.recovery_point,
            )
        if self.broken is not None:
            return max(end, self.recovery_point)
        if end < self.log_start_offset:
            logger.warning(
                "log %s ends at %d, below its start %d: removing its segments",
                self.topic_partition,
                end,
                self.log_start_offset,
            )
            for segment in list(segments):
                segments.remove(segment)
                segment.delete()
            return self.log_start_offset
        return end


def _begin_of_next(segments: list[LogSegment], segment: LogSegment) -> int:
    """The base offset of the next segment that holds anything."""
    return min(
        (s.base_offset for s in segments if s.size and s.base_offset > segment.base_offset),
        default=OFFSET_MAX,
    )
