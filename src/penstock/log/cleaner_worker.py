"""The process that compacts logs: `python -m penstock.log.cleaner_worker`, a child of the broker.

Duty: take one job at a time from standard input, build the map of latest offsets over the dirty
section, write the cleaned segments next to the old ones, and answer on standard output. It never
changes a file of the log itself: the broker swaps the segments.

Invariants: when a job ends in anything but `done`, none of its `.cleaned` files is left (a killed
process leaves that to the broker). `done` is said only after everything is synced.

Limits: memory is the map (`log.cleaner.dedupe.buffer.size`), a chunk of input and one of output,
and one unpacked batch. The process runs at low priority, ends when standard input does, and looks
for an `abort` between any two chunks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from penstock.base.errors import CorruptRecord
from penstock.log.cleaner import group_segments
from penstock.log.cleaner_files import CleanedSegment, Pause, read_batches, remove_cleaned
from penstock.log.cleaner_filter import BatchFilter, OffsetMap, offsets_only
from penstock.log.cleaner_job import (
    LENGTH,
    CleanedGroup,
    CleanJob,
    CleanResult,
    SegmentFacts,
    frame,
    parse_job,
    result_message,
)
from penstock.log.cleaner_transactions import CleanedTransactions
from penstock.log.files import fsync_dir
from penstock.log.index import AbortedTxn, IndexCache, OffsetIndex, TransactionIndex
from penstock.log.sealing import Seal
from penstock.log.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)

NICENESS = 10
"""How much CPU priority the cleaner gives up in favour of the brokers."""
THROTTLE_PERIOD_S = 0.3
"""Bytes are counted over spans of this length, so that short bursts are let through."""


class CleaningAborted(Exception):
    """The broker asked for the end of this job."""


class ParentGone(Exception):
    """Standard input is closed: nobody waits for an answer any more."""


def clean(job: CleanJob, pause: Pause) -> CleanResult:
    """Do the job; on any error nothing of it is left on disk."""
    try:
        return _clean(job, pause)
    except BaseException:
        remove_cleaned(job.directory)
        raise


def _clean(job: CleanJob, pause: Pause) -> CleanResult:
    aborted = _aborted_transactions(job)
    offset_map = build_offset_map(job, aborted, pause)
    end_offset = max(offset_map.latest_offset + 1, job.first_dirty_offset)
    segments = [_with_index_sizes(job, s) for s in job.segments if s.base_offset < end_offset]
    untouched = job.segments[len(segments) :]
    transactions = CleanedTransactions(aborted)
    batch_filter = BatchFilter(
        offset_map,
        transactions,
        job.producers,
        now_ms=job.now_ms,
        delete_retention_ms=job.delete_retention_ms,
    )
    groups = [
        _clean_group(job, number, group, batch_filter, transactions, pause)
        for number, group in enumerate(
            group_segments(
                segments,
                segment_bytes=job.segment_bytes,
                segment_index_bytes=job.segment_index_bytes,
                end_offset=untouched[0].base_offset if untouched else job.first_uncleanable_offset,
            )
        )
    ]
    fsync_dir(job.directory)
    return CleanResult(
        groups=tuple(groups),
        end_offset=end_offset,
        bytes_before=sum(s.size_bytes for s in segments),
        bytes_after=sum(g.size_bytes for g in groups),
        messages_before=batch_filter.messages_before,
        messages_after=batch_filter.messages_after,
        invalid_messages=batch_filter.invalid_messages,
        keys=len(offset_map.offsets),
    )


def _with_index_sizes(job: CleanJob, segment: SegmentFacts) -> SegmentFacts:
    offset_index, time_index = (
        os.stat(segment_path(job.directory, segment.base_offset, suffix)).st_size
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    )
    return segment._replace(offset_index_bytes=offset_index, time_index_bytes=time_index)


def _aborted_transactions(job: CleanJob) -> list[AbortedTxn]:
    """All that have data below the first uncleanable offset, wherever their markers lie."""
    bases = chain((s.base_offset for s in job.segments), job.later_segments)
    return [
        txn
        for base in bases
        for txn in TransactionIndex(segment_path(job.directory, base, TXN_INDEX_SUFFIX), base).all()
        if txn.first_offset < job.first_uncleanable_offset
    ]


def build_offset_map(job: CleanJob, aborted: Sequence[AbortedTxn], pause: Pause) -> OffsetMap:
    """The latest offsets of the keys from the first dirty offset on, as far as memory reaches."""
    start = job.first_dirty_offset
    offset_map = OffsetMap(job.dedupe_buffer_bytes)
    transactions = CleanedTransactions(txn for txn in aborted if txn.last_offset >= start)
    ends = [*(s.base_offset for s in job.segments), job.first_uncleanable_offset][1:]
    for segment, end in zip(job.segments, ends, strict=True):
        if end <= start:
            continue
        path = segment_path(job.directory, segment.base_offset, LOG_SUFFIX)
        position = _position_of(job, segment, start)
        seal = _seal(job, segment)
        for header, batch in read_batches(path, segment.size_bytes, position, pause, seal):
            may_drop = transactions.may_drop(header, batch)
            if header.last_offset < start:
                continue
            holds_keys = header.record_count and not may_drop and not header.is_control
            if holds_keys and not offset_map.add(header, batch):
                return offset_map
            offset_map.latest_offset = header.last_offset
        # Earlier cleanings may have left a gap at the end of the segment.
        offset_map.latest_offset = end - 1
    return offset_map


def _seal(job: CleanJob, segment: SegmentFacts) -> Seal | None:
    return None if job.keys is None else job.keys.seal(segment.base_offset)


def _position_of(job: CleanJob, segment: SegmentFacts, offset: int) -> int:
    if offset <= segment.base_offset:
        return 0
    path = segment_path(job.directory, segment.base_offset, INDEX_SUFFIX)
    return OffsetIndex(path, segment.base_offset, IndexCache()).lookup(offset)


def _clean_group(
    job: CleanJob,
    number: int,
    group: Sequence[SegmentFacts],
    batch_filter: BatchFilter,
    transactions: CleanedTransactions,
    pause: Pause,
) -> CleanedGroup:
    base_offset = group[0].base_offset
    key = None if job.keys is None else job.keys.take(base_offset, number)
    cleaned = CleanedSegment(job.directory, base_offset, job.index_interval_bytes, key)
    try:
        modified_ns, header, kept = 0, None, None
        for segment in group:
            path = segment_path(job.directory, segment.base_offset, LOG_SUFFIX)
            seal = _seal(job, segment)
            for header, batch in read_batches(path, segment.size_bytes, 0, pause, seal):
                kept = batch_filter.apply(header, batch)
                if kept is not None:
                    cleaned.append(kept, pause)
                while transactions.kept:
                    cleaned.add_aborted(transactions.kept.pop())
            modified_ns = os.stat(path).st_mtime_ns
        if header is not None and kept is None:
            # A swap that a crash interrupts is completed by the offsets that the new segment spans.
            cleaned.append(offsets_only(header), pause)
        size = cleaned.finish(modified_ns, pause)
    finally:
        cleaned.close()
    return CleanedGroup(base_offset, tuple(s.base_offset for s in group), size)


class Throttle:
    """Says how long to wait so that bytes per second stay below a limit."""

    __slots__ = ("_bytes", "_per_second", "_since")

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._since = now
        self._bytes = 0

    def count(self, size: int, now: float) -> float:
        """Note `size` bytes at time `now`; the seconds to wait before going on."""
        self._bytes += size
        elapsed = now - self._since
        needed = self._bytes / self._per_second
        if needed <= elapsed:
            if elapsed > THROTTLE_PERIOD_S:
                self._since, self._bytes = now, 0
            return 0.0
        return needed - elapsed if needed > THROTTLE_PERIOD_S else 0.0


class Pipe:
    """The broker's messages on one descriptor, answers to it on another."""

    __slots__ = ("_buffer", "_in", "_out", "_queue")

    def __init__(self, in_fd: int, out_fd: int) -> None:
        self._in = in_fd
        self._out = out_fd
        self._buffer = bytearray()
        self._queue: list[dict[str, Any]] = []

    def next(self) -> dict[str, Any]:
        """The next message, however long it takes to come."""
        while not self._queue:
            self._read()
        return self._queue.pop(0)

    def aborts(self, job_id: int, wait_s: float) -> bool:
        """Whether the broker wants job `job_id` to end; sleeps up to `wait_s` for that."""
        deadline = time.monotonic() + wait_s
        # The abort may have come together with its job, so the queue is checked first.
        while not any(m["type"] == "abort" and m["id"] == job_id for m in self._queue):
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return False
            self._read()
        return True

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._out, data) :]

    def _read(self) -> None:
        data = os.read(self._in, 1 << 20)
        if not data:
            raise ParentGone
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            self._queue.append(json.loads(self._buffer[LENGTH.size : end]))
            del self._buffer[:end]


def run(pipe: Pipe) -> None:
    """Serve jobs until the broker goes away."""
    while True:
        message = pipe.next()
        # An abort that comes after its job has ended has nothing left to do.
        if message["type"] == "job":
            pipe.send(_answer(pipe, message))


def _answer(pipe: Pipe, message: dict[str, Any]) -> bytes:
    job, job_id = parse_job(message), message["id"]
    throttle = Throttle(job.io_max_bytes_per_second, time.monotonic())

    def pause(size: int) -> None:
        if pipe.aborts(job_id, throttle.count(size, time.monotonic())):
            raise CleaningAborted

    try:
        return result_message(clean(job, pause), job_id)
    except CleaningAborted:
        return frame({"type": "aborted", "id": job_id})
    except CorruptRecord as e:
        return frame({"type": "corrupt", "id": job_id, "message": str(e)})
    except OSError as e:
        return frame({"type": "failed", "id": job_id, "message": str(e)})


def main() -> None:
    # A terminal's Ctrl-C reaches the whole group; the broker decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    try:
        run(Pipe(0, 1))
    except (ParentGone, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
