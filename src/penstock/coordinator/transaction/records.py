"""The records of `__transaction_state`, in Kafka's own formats.

A key is its type as int16 and the transactional id; a value is its version as int16 and its fields;
a null value is a tombstone. Both versions of the value are read. Version 1 is written from
`transaction.version` 1; version 0 cannot say which producer ids came before and come after, nor
which version of transactions the client speaks. Keys of other types are read as None and left
alone, as Kafka does.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from penstock.base.errors import CorruptRecord
from penstock.base.ids import NO_PRODUCER_ID
from penstock.coordinator.effects import CoordinatorRecord
from penstock.wire.errors import WireError
from penstock.wire.schema import Message, Struct, array, int8, int16, int32, int64, string

FLEXIBLE_FROM: Final = 1
"""The first `transaction.version` with which values are written in version 1."""


class TransactionLogKey(Message, api_key=0, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(int32, "0+")


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", tag=0, default=NO_PRODUCER_ID, ignorable=True)
    next_producer_id: int = int64("1+", tag=1, default=NO_PRODUCER_ID, ignorable=True)
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(
        PartitionsSchema, "0+", nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2, default=0, ignorable=True)


_INT16: Final = struct.Struct(">h")


class Decoded(NamedTuple):
    """What the log says of a transactional id; `value` is None for a tombstone."""

    transactional_id: str
    value: TransactionLogValue | None


def encode(
    transactional_id: str, value: TransactionLogValue | None, transaction_version: int
) -> CoordinatorRecord:
    """The log record that says `value` of `transactional_id`; None is a tombstone."""
    assert TransactionLogKey.API_KEY is not None
    key = TransactionLogKey(transactional_id=transactional_id)
    raw_key = _INT16.pack(TransactionLogKey.API_KEY) + key.encode(0)
    if value is None:
        return CoordinatorRecord(raw_key, None)
    version = 1 if transaction_version >= FLEXIBLE_FROM else 0
    return CoordinatorRecord(raw_key, _INT16.pack(version) + value.encode(version))


def decode(key: bytes, value: bytes | None) -> Decoded | None:
    """The record behind stored bytes; None for a type that is not ours. CorruptRecord for bytes
    that are no such record.
    """
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind != TransactionLogKey.API_KEY:
            return None
        transactional_id = TransactionLogKey.decode(key[2:], 0).transactional_id
        if value is None:
            return Decoded(transactional_id, None)
        (version,) = _INT16.unpack_from(value)
        return Decoded(transactional_id, TransactionLogValue.decode(value[2:], version))
    except (WireError, struct.error) as e:
        raise CorruptRecord(f"a record of the transaction log cannot be read: {e}") from e
