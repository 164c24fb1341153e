"""What a producer's records must be before they enter a log, and the few cases that rewrite them.

Duty: turn the records of one partition of a Produce request into one checked batch, in two steps.
`accepted` is quick and belongs on the event loop: length, magic, CRC-32C and everything that the
header can show; in small uncompressed batches, where it costs next to nothing, the record lengths
are walked so that a miscounted batch is refused. It returns an `UncheckedBatch`, which no log
takes, if the records must be checked: the batch is compressed (unless
`penstock.record.validation` is `header`), every batch is to be walked (`full`), or a setting of
the topic needs it. `unpacked` makes a batch of that.

Invariants: `unpacked` changes nothing that is shared and may run in any thread. What it holds is
bounded by `PRODUCED_BATCH_UNPACKED_BYTES_MAX`; `unpacked_on_loop` does only what is quick, and
returns None for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.base.limits import PRODUCED_BATCH_UNPACKED_BYTES_MAX
from penstock.config.log_config import LogConfig
from penstock.log.log import Batch
from penstock.wire.compression import Compression, UnpacksTooLarge
from penstock.wire.record_walk import Walked, Wanted, check_records
from penstock.wire.records import (
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_batch,
    check_producer_batch,
    check_record_lengths,
    parse_header,
    recompress,
    rewrite_header,
)

RECORDS_WALKED_MAX: Final = 16
"""Uncompressed batches of up to this many records have their record lengths walked always."""

UNPACKED_ON_LOOP_BYTES_MAX: Final = 16 * 1024
RECORDS_ON_LOOP_MAX: Final = 512
"""A batch of more bytes, packed or unpacked, or of more records is checked in a worker thread."""
REPACKED_ON_LOOP_BYTES_MAX: Final = 4 * 1024
"""The same for a batch that is packed again by another codec, which takes ten times as long."""
WALK_SECONDS_MAX: Final = 1e-3
PAUSE_SECONDS: Final = 50e-6
"""How long a walk in a worker thread holds the interpreter lock before it lets the loop run."""

_MAGIC_POSITION: Final = 16
_LOG_APPEND_TIME: Final = 0x08
_COMPRESSION_MASK: Final = 0x07
_NEVER: Final = (1 << 63) - 1
_NO_TIMESTAMP = -1
_ZSTD: Final = int(Compression.ZSTD)
_new_tuple: Final = tuple.__new__  # cheaper than a named tuple's own constructor

Pause: TypeAlias = Callable[[], None]

_WANTED = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class RecordsRefused(ApiError):
    """Some records of the batch are invalid; `indexes` are their positions in it."""

    def __init__(self, code: ErrorCode, message: str, indexes: list[int]) -> None:
        super().__init__(code, message)
        self.indexes = indexes


class UncheckedBatch(NamedTuple):
    """A producer's batch whose header has been checked, and whose records have not."""

    header: BatchHeader
    data: memoryview | bytes  # a plain `memoryview` is a name that compiled classes do not find


class BatchRules:
    """What a topic's settings demand of a batch, worked out once for each change of them."""

    __slots__ = (
        "_compression",
        "_keys_needed",
        "_level",
        "_log_append_time",
        "_size_max",
        "_time_after_max_ms",
        "_time_before_max_ms",
        "_unpack",
        "_walk_all",
    )

    def __init__(self, config: LogConfig, *, full: bool, unpack: bool = True) -> None:
        """`full`: walk the records of every batch; `unpack`: of every compressed one
        (`penstock.record.validation`).
        """
        self._size_max = config.max_message_bytes
        self._log_append_time = config.message_timestamp_type == "LogAppendTime"
        self._time_after_max_ms = config.message_timestamp_after_max_ms
        self._time_before_max_ms = config.message_timestamp_before_max_ms
        self._keys_needed = "compact" in config.cleanup_policy
        # Records may be older than the first one, so that limit needs all timestamps.
        self._walk_all = full or self._keys_needed or self._time_before_max_ms != _NEVER
        self._unpack = unpack
        self._compression = _WANTED.get(config.compression_type)
        self._level = _level(self._compression, config)

    def accepted(
        self,
        records: memoryview | None,
        now_ms: int,
        transactional: bool = False,
        zstd: bool = True,
    ) -> Batch | UncheckedBatch:
        """The one batch in `records`, its header and checksum checked; ApiError if it is refused.

        `transactional`: the request carries a transactional id. `zstd`: its client may use that.
        """
        if not records:
            raise ApiError(
                ErrorCode.INVALID_RECORD, "a partition of a Produce request carries no records"
            )
        try:
            header = check_batch(records)
        except CorruptRecord as e:
            raise _unreadable(records, e) from None
        size = len(records)
        if header.length + LOG_OVERHEAD != size:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                "a partition of a Produce request carries more than one record batch",
            )
        check_producer_batch(header)
        attributes = header.attributes
        if attributes & TRANSACTIONAL_FLAG and not transactional:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch came in a request without a transactional.id",
            )
        if size > self._size_max:
            raise self._too_large(header)
        kind = attributes & _COMPRESSION_MASK
        if kind == _ZSTD and not zstd:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"
            )
        if not kind and header.record_count <= RECORDS_WALKED_MAX:
            try:
                check_record_lengths(records, header.record_count)
            except CorruptRecord as e:
                raise _invalid(e) from None
        if (
            self._walk_all
            or (kind and self._unpack)
            or (self._compression is not None and self._compression != kind)
            or (
                header.max_timestamp > now_ms + self._time_after_max_ms
                and not self._log_append_time
            )
        ):
            return UncheckedBatch(header, records)
        batch: Batch = _new_tuple(Batch, (header, records))
        if not self._log_append_time:
            return batch
        return self._stamped(batch, header.max_timestamp, now_ms)

    def unpacked_on_loop(self, batch: UncheckedBatch, now_ms: int) -> Batch | None:
        """`unpacked`, if that is quick; None if it belongs in a worker thread."""
        header = batch.header
        repacked = self._compression is not None and self._compression != header.compression
        size_max = REPACKED_ON_LOOP_BYTES_MAX if repacked else UNPACKED_ON_LOOP_BYTES_MAX
        if header.size > size_max or header.record_count > RECORDS_ON_LOOP_MAX:
            return None
        try:
            return self._unpacked(batch, now_ms, UNPACKED_ON_LOOP_BYTES_MAX, None)
        except UnpacksTooLarge:
            return None

    def unpacked(self, batch: UncheckedBatch, now_ms: int) -> Batch:
        """The batch with its records checked, if need be rewritten; ApiError if it is refused.

        For a worker thread.
        """
        try:
            return self._unpacked(batch, now_ms, PRODUCED_BATCH_UNPACKED_BYTES_MAX, _StandBack())
        except UnpacksTooLarge as e:
            # A producer splits what is too large, and sends it again.
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from None

    def _unpacked(
        self, unchecked: UncheckedBatch, now_ms: int, max_bytes: int, pause: Pause | None
    ) -> Batch:
        header, data = unchecked
        base = header.base_timestamp
        if self._log_append_time:
            wanted = Wanted(keys=self._keys_needed)
        else:
            wanted = Wanted(
                keys=self._keys_needed,
                earliest=now_ms - self._time_before_max_ms - base,
                latest=now_ms + self._time_after_max_ms - base,
                exempt=_NO_TIMESTAMP - base,
            )
        try:
            walked = check_records(data, header, wanted, max_bytes=max_bytes, pause=pause)
        except UnpacksTooLarge:
            raise
        except CorruptRecord as e:
            raise _invalid(e) from None
        if walked.untimely or walked.keyless:
            raise self._refused(walked)
        latest = base + walked.latest
        if not (self._log_append_time or -_NEVER <= latest <= _NEVER):
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, f"a record has the timestamp {latest}")
        if self._compression is not None and self._compression != header.compression:
            packed = recompress(data, self._compression, self._level)
            return self._stamped(Batch(parse_header(packed), packed), latest, now_ms)
        return self._stamped(Batch(header, data), latest, now_ms)

    def _stamped(self, batch: Batch, max_timestamp: int, now_ms: int) -> Batch:
        """The batch with the timestamps that it should have."""
        header, data = batch.header, batch.data
        attributes = header.attributes
        if self._log_append_time:
            attributes, max_timestamp = attributes | _LOG_APPEND_TIME, now_ms
        if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
            stamped = bytearray(data)
            header = rewrite_header(stamped, attributes=attributes, max_timestamp=max_timestamp)
            data = bytes(stamped)
        if len(data) > self._size_max:
            raise self._too_large(header)
        return Batch(header, data)

    def _too_large(self, header: BatchHeader) -> ApiError:
        return ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes of the topic allows "
            f"{self._size_max}",
        )

    def _refused(self, walked: Walked) -> RecordsRefused:
        places = sorted({*walked.keyless, *walked.untimely})
        if set(walked.untimely) <= set(walked.keyless):
            return RecordsRefused(
                ErrorCode.INVALID_RECORD, "a compacted topic takes only records with a key", places
            )
        return RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "the timestamps of some records are too far from the broker's clock; the topic allows "
            f"{self._time_before_max_ms} ms before it (message.timestamp.before.max.ms) and "
            f"{self._time_after_max_ms} ms after it (message.timestamp.after.max.ms)",
            places,
        )


class _StandBack:
    """Called again and again in one thread, it lets the others run every `WALK_SECONDS_MAX`."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self) -> None:
        now = time.perf_counter()
        if self._since and now - self._since >= WALK_SECONDS_MAX:
            time.sleep(PAUSE_SECONDS)
            now = time.perf_counter()
        elif self._since:
            return
        self._since = now


def _invalid(error: CorruptRecord) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, str(error))


def _unreadable(records: memoryview, error: CorruptRecord) -> ApiError:
    if len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] != MAGIC:
        return ApiError(
            ErrorCode.INVALID_RECORD,
            f"message format {records[_MAGIC_POSITION]} is not accepted; use a client that "
            "writes record batches of magic 2",
        )
    return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


class InternalTopicRules(BatchRules):
    """Only its coordinator writes to an internal topic."""

    __slots__ = ()

    def accepted(
        self,
        records: memoryview | None,
        now_ms: int,
        transactional: bool = False,
        zstd: bool = True,
    ) -> Batch | UncheckedBatch:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "the topic is the cluster's own: only its coordinator writes to it",
        )


def _level(kind: Compression | None, config: LogConfig) -> int | None:
    if kind == Compression.GZIP:
        return config.compression_gzip_level
    if kind == Compression.LZ4:
        return config.compression_lz4_level
    if kind == Compression.ZSTD:
        return config.compression_zstd_level
    return None
