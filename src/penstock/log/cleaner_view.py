"""What the cleaner's decisions need to know of a `Log`, read from it.

Owned by the loop's thread, like the log. The first inspection of a rolled segment reads its first
header and the last entry of its time index; both are remembered, and only dirty segments are
inspected.
"""

from __future__ import annotations

import base64

from penstock.base.ids import uuid_text
from penstock.keys.data_keys import DataKey
from penstock.log.cleaner import LogState
from penstock.log.cleaner_job import ProducerEnd, SegmentFacts, SegmentKeys
from penstock.log.key_file import NO_TOPIC_ID
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


def segment_keys(log: Log, end_offset: int, new: list[DataKey]) -> SegmentKeys | None:
    """The data keys for a cleaning below `end_offset`, with `new` ones for the segments that it
    makes; None if it needs none.
    """
    old = {}
    for segment in log.segments:
        key_file, seal = segment.key_file, segment.file.seal
        if segment.base_offset < end_offset and key_file is not None and seal is not None:
            old[str(segment.base_offset)] = (uuid_text(key_file.topic_id), _b64(seal.secret))
    if not old and not new:
        return None
    return SegmentKeys(
        uuid_text(log.topic_id or NO_TOPIC_ID),
        log.topic_partition.partition,
        old,
        tuple((*key.wrapped[:2], _b64(key.wrapped.wrapped), _b64(key.secret)) for key in new),
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


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
