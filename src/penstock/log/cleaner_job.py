"""The messages between broker and cleaner process: a job, its result, and their framing.

A message is a JSON object behind its length (four bytes, big-endian). The broker sends `job` and
`abort`, the child answers each job with exactly one `done`, `aborted`, `corrupt` or `failed`.
Every message carries the `id` of its job.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from penstock.base.ids import NO_TIMESTAMP, parse_uuid
from penstock.keys.provider import WrappedKey
from penstock.log.key_file import KeyFile, context_seal
from penstock.log.sealing import Seal

LENGTH = Struct(">I")
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
"""A log has at most some hundred thousand segments and producers; a larger message is a bug."""


class SegmentFacts(NamedTuple):
    """What the cleaner knows of a segment."""

    base_offset: int
    size_bytes: int
    first_timestamp: int = NO_TIMESTAMP
    """The largest timestamp of the first batch."""
    max_timestamp: int = NO_TIMESTAMP
    offset_index_bytes: int = 0
    """Filled in, like the next, by the child process: only grouping needs them."""
    time_index_bytes: int = 0


class ProducerEnd(NamedTuple):
    """Where an active producer stands in the log; its last batch survives cleaning."""

    producer_id: int
    producer_epoch: int
    last_data_offset: int
    """-1: only a transaction marker of this producer is left."""


class SegmentKeys(NamedTuple):
    """The data keys of a log that is encrypted, or is to be. They go through the pipe, which
    nobody else reads.
    """

    topic_id: str
    partition: int
    old: dict[str, tuple[str, str]]
    """Of the segments that are encrypted, by base offset: the topic id in the key file, and the
    data key in base64.
    """
    new: tuple[tuple[str, int, str, str], ...]
    """For the new segments, if they are to be encrypted: key id, version, wrapped and plain data
    key in base64.
    """

    def __repr__(self) -> str:
        return "<SegmentKeys>"

    def seal(self, base_offset: int) -> Seal | None:
        """What decrypts a segment, if it is encrypted."""
        found = self.old.get(str(base_offset))
        if found is None:
            return None
        topic_id, secret = found
        return context_seal(base64.b64decode(secret), parse_uuid(topic_id), self.partition)

    def take(self, base_offset: int, number: int) -> tuple[KeyFile, Seal] | None:
        """The key of the new segment with that number; None if it is not to be encrypted."""
        if not self.new:
            return None
        key_id, version, wrapped, secret = self.new[number]
        key = WrappedKey(key_id, version, base64.b64decode(wrapped))
        key_file = KeyFile(parse_uuid(self.topic_id), self.partition, base_offset, key)
        return key_file, key_file.seal(base64.b64decode(secret))


class CleanJob(NamedTuple):
    """One log to clean. `segments` are immutable files, in offset order."""

    directory: str
    segments: tuple[SegmentFacts, ...]
    later_segments: tuple[int, ...]
    """Base offsets of the segments that stay; markers of transactions may lie there."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    producers: tuple[ProducerEnd, ...]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    io_max_bytes_per_second: float
    keys: SegmentKeys | None = None
    """None where nothing is encrypted, and nothing is to be."""


class CleanedGroup(NamedTuple):
    """One new segment (still under its `.cleaned` names) and those it stands for."""

    base_offset: int
    replaces: tuple[int, ...]
    size_bytes: int


class CleanResult(NamedTuple):
    """What a cleaning brought about. The log is unchanged until the groups are swapped in."""

    groups: tuple[CleanedGroup, ...]
    end_offset: int
    """Everything below is clean now: the first dirty offset to note."""
    bytes_before: int
    bytes_after: int
    messages_before: int
    messages_after: int
    invalid_messages: int
    """Records without a key, which a compacted log cannot hold."""
    keys: int


def frame(message: Mapping[str, Any]) -> bytes:
    """`message` as it goes through the pipe."""
    data = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


def job_message(job: CleanJob, job_id: int) -> bytes:
    return frame({"type": "job", "id": job_id, **job._asdict()})


def parse_job(message: Mapping[str, Any]) -> CleanJob:
    """The job in a `job` message."""
    fields = {name: message[name] for name in CleanJob._fields}
    fields["segments"] = tuple(SegmentFacts(*s) for s in fields["segments"])
    fields["later_segments"] = tuple(fields["later_segments"])
    if fields["keys"] is not None:
        topic_id, partition, old, new = fields["keys"]
        fields["keys"] = SegmentKeys(topic_id, partition, old, tuple(tuple(key) for key in new))
    fields["producers"] = tuple(ProducerEnd(*p) for p in fields["producers"])
    return CleanJob(**fields)


def result_message(result: CleanResult, job_id: int) -> bytes:
    return frame({"type": "done", "id": job_id, **result._asdict()})


def parse_result(message: Mapping[str, Any]) -> CleanResult:
    """The result in a `done` message."""
    fields = {name: message[name] for name in CleanResult._fields}
    fields["groups"] = tuple(
        CleanedGroup(base, tuple(replaces), size) for base, replaces, size in fields["groups"]
    )
    return CleanResult(**fields)
