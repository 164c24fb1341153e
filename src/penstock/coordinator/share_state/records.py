"""The records of `__share_group_state`, in Kafka's own formats.

A key is its type as int16 and the share-partition; a value is its version as int16 and its fields.
A snapshot says everything of a share-partition, an update what has changed since; a snapshot with a
null value is a tombstone. Keys of other types are read as None and left alone, as Kafka does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import CorruptRecord
from penstock.base.ids import Uuid
from penstock.share.types import UNKNOWN_COUNT, ShareKey, StateBatch
from penstock.wire.apis import OUR_TAGS_FROM
from penstock.wire.errors import WireError
from penstock.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid

SNAPSHOT: Final = 0
UPDATE: Final = 1
_VERSION: Final = 0


# Kafka's ShareUpdateKey has the same fields under the type of updates.
class ShareSnapshotKey(Message, api_key=SNAPSHOT, versions="0"):
    group_id: str = string("0")
    topic_id: Uuid = uuid("0")
    partition: int = int32("0")


# Kafka calls it `StateBatch`.
class RecordedBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")
    cause: int = int8("0+", tag=OUR_TAGS_FROM)
    """Why a record becomes a dead letter: not Kafka's, which does not persist it. Absent for most
    records; Kafka's tools pass over it.
    """


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, default=UNKNOWN_COUNT)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[RecordedBatch] = array(RecordedBatch, "0+")


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, default=UNKNOWN_COUNT)
    state_batches: list[RecordedBatch] = array(RecordedBatch, "0+")


Value: TypeAlias = ShareSnapshotValue | ShareUpdateValue
_VALUES: Final[Mapping[int, type[ShareSnapshotValue] | type[ShareUpdateValue]]] = {
    SNAPSHOT: ShareSnapshotValue,
    UPDATE: ShareUpdateValue,
}
_INT16: Final = struct.Struct(">h")
_VERSION_BYTES: Final = _INT16.pack(_VERSION)
_KIND_BYTES: Final = {kind: _INT16.pack(kind) for kind in _VALUES}


class Decoded(NamedTuple):
    """What a record says of a share-partition; `value` is None for a tombstone."""

    key: ShareKey
    value: Value | None


def encode_key(kind: int, key: ShareKey) -> bytes:
    fields = ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _KIND_BYTES[kind] + fields.encode(0)


def encode_value(value: Value) -> bytes:
    return _VERSION_BYTES + value.encode(_VERSION)


def decode(key: bytes, value: bytes | None) -> Decoded | None:
    """The record behind stored bytes; None for a type that is not ours. CorruptRecord for bytes
    that are no such record.
    """
    try:
        (kind,) = _INT16.unpack_from(key)
        cls = _VALUES.get(kind)
        if cls is None:
            return None
        fields = ShareSnapshotKey.decode(key[2:], 0)
        named = ShareKey(fields.group_id, fields.topic_id, fields.partition)
        if value is None:
            return Decoded(named, None)
        (version,) = _INT16.unpack_from(value)
        return Decoded(named, cls.decode(value[2:], version))
    except (WireError, struct.error) as e:
        raise CorruptRecord(f"a record of the share coordinator cannot be read: {e}") from e


def is_snapshot(key: bytes) -> bool:
    """Whether the raw key is that of a snapshot or a tombstone."""
    return key[:2] == _KIND_BYTES[SNAPSHOT]


def recorded(batches: Iterable[StateBatch]) -> list[RecordedBatch]:
    return [
        RecordedBatch(
            first_offset=first,
            last_offset=last,
            delivery_state=state,
            delivery_count=count,
            cause=cause,
        )
        for first, last, state, count, cause, _ in batches
    ]


def batches_of(value: Value) -> list[StateBatch]:
    return [
        StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count, b.cause)
        for b in value.state_batches
    ]
