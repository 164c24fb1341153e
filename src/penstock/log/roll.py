"""When the active segment is full: by size, by age, by its indexes, by the distance of offsets."""

from __future__ import annotations

from penstock.config.log_config import LogConfig
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.limits import RELATIVE_OFFSET_MAX
from penstock.log.segment import LogSegment


class RollPolicy:
    """The limits of a segment, taken from the topic's settings once so that appends are quick."""

    __slots__ = (
        "index_interval",
        "jitter_span_ms",
        "offset_entries_max",
        "segment_bytes",
        "segment_ms",
        "time_entries_max",
    )

    def __init__(self, config: LogConfig) -> None:
        self.index_interval = config.index_interval_bytes
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
