"""Records of the offsets topic as bytes: both ways, known bytes, and bytes that are none."""

from __future__ import annotations

from random import Random

import pytest

from penstock.base.errors import CorruptRecord
from penstock.coordinator.records import (
    VALUE_TYPES,
    WRITTEN_VERSIONS,
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode,
)
from penstock.wire.schema import Message
from unit.wire.random_messages import random_struct


@pytest.mark.parametrize("key_type", VALUE_TYPES, ids=lambda cls: cls.__name__)
def test_both_ways(key_type: type[Message]) -> None:
    value_type = VALUE_TYPES[key_type]
    for seed in range(20):
        rng = Random(f"{key_type.__name__} {seed}")
        key = random_struct(key_type, 0, rng)
        value = random_struct(value_type, WRITTEN_VERSIONS[value_type], rng)
        assert decode(*encode(key, value)) == (key, value)
        assert decode(*encode(key, None)) == (key, None)


@pytest.mark.parametrize("key_type", VALUE_TYPES, ids=lambda cls: cls.__name__)
def test_every_version_of_a_value_is_read(key_type: type[Message]) -> None:
    value_type = VALUE_TYPES[key_type]
    for version in value_type.VERSIONS:
        rng = Random(f"{key_type.__name__} {version}")
        key = random_struct(key_type, 0, rng)
        value = random_struct(value_type, version, rng)
        raw = version.to_bytes(2, "big") + value.encode(version)
        assert decode(encode(key, None).key, raw) == (key, value)


def test_known_bytes() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = encode(key, OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9))
    assert record.key.hex() == "0001" + "000167" + "000174" + "00000001"
    assert record.value is not None
    assert record.value.hex() == "0004" + f"{7:016x}" + "ffffffff" + "026d" + f"{9:016x}" + "00"


@pytest.mark.parametrize(
    ("classic", "tags"),
    [
        (None, "01" + "000100"),  # among tagged fields a missing structure is a zero
        (ClassicMemberMetadata(), "00"),
        (ClassicMemberMetadata(session_timeout_ms=5), "01" + "0007" + "01" + "00000005" + "0100"),
    ],
)
def test_what_a_classic_member_adds(classic: ClassicMemberMetadata | None, tags: str) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    value = ConsumerGroupMemberMetadataValue(
        instance_id="i",
        rack_id=None,
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=classic,
    )
    record = encode(key, value)
    assert record.value is not None
    assert record.value.hex() == "0000" + "0269" + "00" + "01010100" + "ffffffff" + "00" + tags
    assert decode(*record) == (key, value)


def test_an_expiry_is_written_in_the_version_that_has_it() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = encode(key, OffsetCommitValue(offset=7, commit_timestamp=9, expire_timestamp=11))
    assert record.value is not None
    assert record.value[:2] == b"\x00\x01"
    found = decode(*record)
    assert found is not None
    assert isinstance(found.value, OffsetCommitValue)
    assert found.value.expire_timestamp == 11


def test_types_of_others_are_left_alone() -> None:
    assert decode(b"\x00\x7f" + b"anything", b"\x00\x00") is None


def test_the_oldest_type_of_offsets_is_read() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    raw = encode(key, None).key
    assert decode(b"\x00\x00" + raw[2:], None) == (key, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (b"\x00\x02\x00\x09x", None),
        (encode(GroupMetadataKey(group="g"), None).key, b"\x00"),
        (encode(GroupMetadataKey(group="g"), None).key, b"\x00\x63"),
        (encode(GroupMetadataKey(group="g"), None).key, b"\x00\x03\x00"),
        (encode(GroupMetadataKey(group="g"), None).key + b"!", b"\x00\x03\x00"),
    ],
)
def test_bytes_that_are_no_record(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        decode(key, value)
