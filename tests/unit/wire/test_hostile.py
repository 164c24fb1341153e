"""Whatever bytes come in, the answer is a message or a WireError, and memory stays in bounds."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from penstock.wire.errors import WireError
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.header import RequestHeader
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.schema import Message
from penstock.wire.varint import unsigned_varint
from unit.wire.random_messages import all_message_versions, all_messages, random_struct

MESSAGES = all_messages()
MESSAGE_VERSIONS = list(all_message_versions())


def fault(cls: type[Message], raw: bytes, version: int) -> WireError | None:
    try:
        cls.decode(memoryview(raw), version)
    except WireError as error:
        return error
    return None


def decodes(cls: type[Message], raw: bytes, version: int) -> bool:
    """Whether `raw` is a message; any error but a WireError that says where fails the test."""
    error = fault(cls, raw, version)
    if error is None:
        return True
    assert (error.message, error.version) == (cls.__name__, version)
    assert error.position is not None
    assert 0 <= error.position <= len(raw)
    return False


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_truncation_is_an_error(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        raw = random_struct(cls, version, Random(f"{cls.__name__} {version}")).encode(version)
        for cut in sorted({*range(min(len(raw), 60)), *range(0, len(raw), 97)}):
            assert not decodes(cls, raw[:cut], version), cut
        assert not decodes(cls, raw + b"\0", version)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_mutated_messages(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        rng = Random(f"{cls.__name__} {version}")
        raw = random_struct(cls, version, rng).encode(version)
        for _ in range(20 if raw else 0):
            broken = bytearray(raw)
            for _ in range(rng.randrange(1, 4)):
                broken[rng.randrange(len(broken))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            decodes(cls, bytes(broken), version)


@given(st.sampled_from(MESSAGE_VERSIONS), st.binary(max_size=200))
@settings(max_examples=1500, deadline=None)
def test_random_bytes(message_version: tuple[type[Message], int], raw: bytes) -> None:
    cls, version = message_version
    decodes(cls, raw, version)


def refusal(cls: type[Message], version: int, raw: bytes) -> WireError:
    with pytest.raises(WireError) as caught:
        cls.decode(raw, version)
    return caught.value


def test_negative_string_length() -> None:
    error = refusal(RequestHeader, 1, struct.pack(">hhih", 0, 0, 0, -2))
    assert (error.field, error.position) == ("client_id", 10)
    assert "-2" in error.reason


def test_null_where_none_may_be() -> None:
    error = refusal(ApiVersionsRequest, 3, b"\0\1\0")
    assert (error.field, error.position) == ("client_software_name", 1)
    assert "null" in error.reason
    assert "null" in refusal(CreateTopicsRequest, 2, struct.pack(">iib", -1, 0, 0)).reason


def test_string_that_is_not_utf8() -> None:
    error = refusal(ApiVersionsRequest, 3, b"\x02\xff\x01\x00")
    assert error.field == "client_software_name"
    assert "utf-8" in error.reason


def test_string_longer_than_kafka_allows() -> None:
    raw = unsigned_varint(40_001) + b"x" * 40_000 + b"\x01\x00"
    assert "32767" in refusal(ApiVersionsRequest, 3, raw).reason
    with pytest.raises(WireError, match="32767"):
        ApiVersionsRequest(client_software_name="x" * 40_000).encode(3)


def test_varint_without_end() -> None:
    assert "5 bytes" in refusal(ApiVersionsRequest, 3, b"\xff" * 12).reason
    assert "32 bits" in refusal(ApiVersionsRequest, 3, b"\xff\xff\xff\xff\x7f\0\0").reason


def test_array_longer_than_the_buffer() -> None:
    error = refusal(CreateTopicsRequest, 2, struct.pack(">i", 0x7FFF_FFFF) + bytes(50))
    assert error.field == "topics"
    assert "50 bytes" in error.reason


def test_structure_mark_that_is_neither_null_nor_present() -> None:
    error = refusal(DescribeTopicPartitionsRequest, 0, b"\x01\x00\x00\x07\xd0\x05\x00")
    assert error.field == "cursor"


def test_unknown_tagged_fields_are_skipped() -> None:
    known = ApiVersionsRequest(client_software_name="a", client_software_version="b")
    raw = known.encode(3)[:-1]
    assert ApiVersionsRequest.decode(raw + b"\x02\x63\x02xy\xff\x7f\x00", 3) == known
    assert refusal(ApiVersionsRequest, 3, raw + b"\x01\x63\x03xy").field == "tagged fields"


def test_unknown_tagged_fields_beside_known_ones() -> None:
    known = FetchRequest(cluster_id="c")
    raw = known.encode(12)
    assert raw.endswith(b"\x01\x00\x02\x02c")
    more = raw[:-5] + b"\x02\x00\x02\x02c\x63\x03abc"
    assert FetchRequest.decode(more, 12) == known


def test_tagged_field_of_the_wrong_size() -> None:
    raw = FetchRequest(cluster_id="c").encode(12)
    error = refusal(FetchRequest, 12, raw[:-5] + b"\x01\x00\x03\x02cx")
    assert error.field == "cluster_id"


def test_too_many_tagged_fields() -> None:
    raw = b"\x02a\x02b" + unsigned_varint(TAGGED_FIELDS_MAX + 1)
    assert str(TAGGED_FIELDS_MAX) in refusal(ApiVersionsRequest, 3, raw + bytes(5000)).reason


def peak_of(cls: type[Message], version: int, raw: bytes) -> int:
    """Bytes that reading `raw` has allocated at most."""
    decodes(cls, b"", version)  # compiles
    tracemalloc.start()
    try:
        decodes(cls, raw, version)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("claimed", [ARRAY_ELEMENTS_MAX, 0x7FFF_FFFF])
def test_a_claim_alone_allocates_nothing(claimed: int) -> None:
    assert peak_of(MetadataRequest, 1, struct.pack(">i", claimed) + bytes(100)) < 100_000
    topics = b"\0" + bytes(6) + unsigned_varint(2) + b"\x02t" + unsigned_varint(claimed) + bytes(99)
    assert peak_of(ProduceRequest, 9, topics) < 100_000


def test_arrays_together_are_bounded() -> None:
    topic = struct.pack(">hi", 0, 60_000) + bytes(60_000 * 8)
    raw = bytes.fromhex("ffff 0000 00000000") + struct.pack(">i", 20) + topic * 20
    error = refusal(ProduceRequest, 3, raw)
    assert error.field == "topic_data.partition_data"
    assert str(ARRAY_ELEMENTS_MAX) in error.reason
