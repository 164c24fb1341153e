"""When the active segment is full (by size, by age, by its indexes, by the distance of offsets) or
not encrypted as it should be, and what happens then.

A segment gets its data key with its first batch, not before: one that stays empty needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.log_config import LogConfig
from penstock.keys.provider import KeyUnavailable
from penstock.log.environment import LogEnvironment
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.key_file import new_key_file
from penstock.log.limits import RELATIVE_OFFSET_MAX
from penstock.log.sealing import SEALED_EXTRA
from penstock.log.segment import LogSegment
from penstock.log.segment_files import remove_segment_files
from penstock.log.staging import StagedAppends

if TYPE_CHECKING:
    from penstock.log.log import Log


class RollPolicy:
    """The limits of a segment, taken from the topic's settings once so that appends are quick."""

    __slots__ = (
        "extra_bytes",
        "index_interval",
        "jitter_span_ms",
        "key_id",
        "offset_entries_max",
        "segment_bytes",
        "segment_ms",
        "time_entries_max",
    )

    def __init__(self, config: LogConfig) -> None:
        self.index_interval = config.index_interval_bytes
        self.key_id = config.penstock_encryption_key_id
        self.extra_bytes = SEALED_EXTRA if self.key_id else 0
        """By how much longer a batch is in the file."""
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        self.jitter_span_ms = min(config.segment_jitter_ms, config.segment_ms)
        self.offset_entries_max = max(config.segment_index_bytes // OffsetIndex.ENTRY_SIZE, 1)
        # One time entry is kept free for the roll, as Kafka does.
        self.time_entries_max = max(config.segment_index_bytes // TimeIndex.ENTRY_SIZE - 1, 1)

    def fits(
        self, segment: LogSegment, size: int, timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether `size` more bytes go into `segment` without a roll before them."""
        if (
            segment.size + size > self.segment_bytes
            or segment.key_id != self.key_id
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            return False
        if not segment.size:
            return True
        first = segment.first_timestamp
        waited = timestamp - first if first >= 0 else now_ms - segment.created_ms
        return (
            waited <= self.segment_ms - segment.jitter_ms
            and segment.offset_index.entries < self.offset_entries_max
            and segment.time_index.entries < self.time_entries_max
        )

    def jitter_ms(self, env: LogEnvironment) -> int:
        """By how much earlier than `segment.ms` says a new segment is rolled."""
        return env.rng.below(self.jitter_span_ms) if self.jitter_span_ms > 0 else 0


def roll_at(log: Log, policy: RollPolicy, offset: int, now_ms: int) -> None:
    """Close the active segment and begin another one at `offset`."""
    active = log.segments.active
    if active.base_offset == offset:
        return
    active.on_become_inactive()
    try:
        segment = LogSegment.create(
            log.dir,
            offset,
            log.env.files,
            log.env.indexes,
            now_ms=now_ms,
            jitter_ms=policy.jitter_ms(log.env),
        )
        # The snapshot lets recovery begin at this segment.
        log.producers.take_snapshot(offset)
    except OSError:
        # An empty segment would hide, after a restart, later writes to the old one.
        remove_segment_files(log.dir, offset)
        raise
    log.segments.add(segment)
    log.batches_unindexed = 0


def match_key(log: Log, policy: RollPolicy) -> None:
    """Have the active segment, which is empty, encrypted as the settings say; `KeyUnavailable` if
    there is no key for it.
    """
    active = log.segments.active
    if active.key_id == policy.key_id:
        return
    if not policy.key_id:
        active.be_plain()
        return
    try:
        key = log.env.keys.take(policy.key_id)
    except KeyUnavailable as e:
        raise KeyUnavailable(f"its new segment cannot be encrypted: {e}") from e
    key_file = new_key_file(key, log.topic_id, log.topic_partition, active.base_offset)
    active.lock_with(key_file, key.secret)


def write_rolling(log: Log, policy: RollPolicy, staged: StagedAppends, now_ms: int) -> None:
    """Write batch by batch, rolling where one does not fit: rare, so plain, not quick."""
    end = log.log_end_offset
    for i, batch in enumerate(staged.batches):
        last_offset, size, timestamp = batch
        pair = staged.buffers[2 * i : 2 * i + 2]
        base_offset = int.from_bytes(pair[0][:8], "big")
        if not policy.fits(log.segments.active, size, timestamp, last_offset, now_ms):
            # Segments follow each other without a gap, also where batches do not.
            begin = end if last_offset - end <= RELATIVE_OFFSET_MAX else base_offset
            roll_at(log, policy, begin, now_ms)
            match_key(log, policy)
        log.segments.active.append(pair, size, [batch], base_offset, policy.index_interval)
        end = last_offset + 1
