"""What a producer's records must be before they enter a log, and the few cases that rewrite them.

Duty: turn the records of one partition of a Produce request into one checked batch. Length, magic,
CRC-32C and everything that the header can show are checked always. The records inside are looked
at only when a setting needs it: `compression.type` other than the producer's, a compacted topic
(every record needs a key), or `penstock.record.validation=full`; and in small uncompressed
batches, where it costs next to nothing, their lengths are walked so that a miscounted batch is
found at the door.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.config.log_config import LogConfig
from penstock.log.log import Batch
from penstock.wire.compression import Compression
from penstock.wire.records import (
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    check_batch,
    check_producer_batch,
    check_record_lengths,
    parse_header,
    read_records,
    recompress,
    rewrite_header,
)

ZSTD_FROM_PRODUCE_VERSION = 7
RECORDS_WALKED_MAX = 16
"""Uncompressed batches of up to this many records have their record lengths walked always."""

_MAGIC_POSITION = 16
_LOG_APPEND_TIME = 0x08
_COMPRESSION_MASK = 0x07
_NEVER = (1 << 63) - 1
_ZSTD = int(Compression.ZSTD)
_new_tuple = tuple.__new__  # cheaper than a named tuple's own constructor

_WANTED = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class RecordsRefused(ApiError):
    """Some records of the batch are the reason; `indexes` are their places in it."""

    def __init__(self, code: ErrorCode, message: str, indexes: list[int]) -> None:
        super().__init__(code, message)
        self.indexes = indexes


class BatchRules:
    """What a topic's settings demand of a batch, worked out once for each change of them."""

    __slots__ = (
        "_compression",
        "_keys_needed",
        "_level",
        "_log_append_time",
        "_plain",
        "_size_max",
        "_time_after_max_ms",
        "_time_before_max_ms",
        "_walk_all",
    )

    def __init__(self, config: LogConfig, *, full: bool) -> None:
        """`full`: walk the records of every batch (`penstock.record.validation`)."""
        self._size_max = config.max_message_bytes
        self._log_append_time = config.message_timestamp_type == "LogAppendTime"
        self._time_after_max_ms = config.message_timestamp_after_max_ms
        self._time_before_max_ms = config.message_timestamp_before_max_ms
        self._keys_needed = "compact" in config.cleanup_policy
        # Records may be older than the first one, so that limit needs a look at each of them.
        self._walk_all = full or self._keys_needed or self._time_before_max_ms != _NEVER
        self._compression = _WANTED.get(config.compression_type)
        self._level = _level(self._compression, config)
        self._plain = not (self._log_append_time or self._walk_all or self._compression is not None)

    def checked(
        self, records: memoryview | None, version: int, now_ms: int, transactional: bool = False
    ) -> Batch:
        """The one batch in `records`, if need be rewritten; ApiError if it is refused.

        `transactional`: the request carries a transactional id.
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
        if kind == _ZSTD and version < ZSTD_FROM_PRODUCE_VERSION:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"zstd needs Produce version {ZSTD_FROM_PRODUCE_VERSION} or later",
            )
        try:
            if not kind and header.record_count <= RECORDS_WALKED_MAX:
                check_record_lengths(records, header.record_count)
            if header.max_timestamp > now_ms + self._time_after_max_ms:
                self._claims_future(header, records, now_ms)
            if self._plain:
                return _new_tuple(Batch, (header, records))
            return self._rewritten(header, records, now_ms)
        except CorruptRecord as e:
            raise ApiError(ErrorCode.INVALID_RECORD, str(e)) from None

    def _too_large(self, header: BatchHeader) -> ApiError:
        return ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes of the topic allows "
            f"{self._size_max}",
        )

    def _claims_future(self, header: BatchHeader, records: memoryview, now_ms: int) -> None:
        """The header's greatest timestamp is beyond the limit: refuse, and name the records."""
        if self._log_append_time:
            return
        self._check_times(read_records(records), now_ms)
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the batch claims the timestamp {header.max_timestamp}, which none of its records has",
        )

    def _check_times(self, inside: list[Record], now_ms: int) -> None:
        latest = now_ms + self._time_after_max_ms
        earliest = now_ms - self._time_before_max_ms
        bad = [
            place
            for place, record in enumerate(inside)
            if record.timestamp >= 0 and not earliest <= record.timestamp <= latest
        ]
        if bad:
            timestamp = inside[bad[0]].timestamp
            raise RecordsRefused(
                ErrorCode.INVALID_TIMESTAMP,
                f"the timestamp {timestamp} is {abs(timestamp - now_ms)} ms away from the "
                f"broker's clock; the topic allows {self._time_before_max_ms} before "
                f"(message.timestamp.before.max.ms) and {self._time_after_max_ms} after "
                "(message.timestamp.after.max.ms)",
                bad,
            )

    def _rewritten(self, header: BatchHeader, records: memoryview, now_ms: int) -> Batch:
        data: memoryview | bytes = records
        attributes, max_timestamp = header.attributes, header.max_timestamp
        repack = self._compression is not None and self._compression != header.compression
        if self._walk_all or repack:
            inside = read_records(records)
            if self._keys_needed:
                _check_keys(inside)
            if not self._log_append_time:
                self._check_times(inside, now_ms)
            max_timestamp = max(record.timestamp for record in inside)
        if repack and self._compression is not None:
            data = recompress(records, self._compression, self._level)
            header = parse_header(data)
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


def _unreadable(records: memoryview, error: CorruptRecord) -> ApiError:
    if len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] != MAGIC:
        return ApiError(
            ErrorCode.INVALID_RECORD,
            f"message format {records[_MAGIC_POSITION]} is not accepted; use a client that "
            "writes record batches of magic 2",
        )
    return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


def _check_keys(inside: list[Record]) -> None:
    bad = [place for place, record in enumerate(inside) if record.key is None]
    if bad:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, "a compacted topic takes only records with a key", bad
        )


class InternalTopicRules(BatchRules):
    """Nobody but its coordinator writes to an internal topic."""

    __slots__ = ()

    def checked(
        self, records: memoryview | None, version: int, now_ms: int, transactional: bool = False
    ) -> Batch:
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
