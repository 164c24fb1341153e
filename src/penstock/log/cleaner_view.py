"""What the cleaner's decisions need to know of a `Log`, read from it.

Owned by the loop's thread, like the log. The first inspection of a rolled segment reads its first
header and the last entry of its time index; both are remembered, and only dirty segments are
inspected.
"""

from __future__ import annotations

from penstock.log.cleaner import LogState
from penstock.log.cleaner_job import ProducerEnd, SegmentFacts
from penstock.log.log import Log
from penstock.log.producer_snapshot import NO_OFFSET


def log_state(log: Log, checkpoint: int | None) -> LogState:
    """The state of `log`, whose first dirty offset was last noted as `checkpoint`."""
    segments = list(log.segments)
    ends = [s.base_offset for s in segments[1:]] + [log.log_end_offset]
    facts = [
        SegmentFacts(s.base_offset, s.size)
        if checkpoint is not None and end <= checkpoint
        else SegmentFacts(
            s.base_offset,
            s.size,
            first_timestamp=s.first_timestamp,
            max_timestamp=s.max_timestamp,
        )
        for s, end in zip(segments, ends, strict=True)
    ]
    return LogState(
        topic_partition=log.topic_partition,
        config=log.config,
        segments=facts,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        checkpoint=checkpoint,
    )


def producer_ends(log: Log) -> list[ProducerEnd]:
    """Where the active producers of `log` stand."""
    return [
        ProducerEnd(
            entry.producer_id,
            entry.epoch,
            entry.batches[-1].last_offset if entry.batches else NO_OFFSET,
        )
        for entry in log.producers.producers.values()
    ]
