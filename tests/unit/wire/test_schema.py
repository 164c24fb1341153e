"""The language of the tables: constructors, values, and what encoding refuses."""

from __future__ import annotations

import pytest

from penstock.wire.errors import WireError
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from penstock.wire.messages.list_offsets import ListOffsetsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    float64,
    int8,
    int32,
    parse_versions,
    string,
    struct,
    uint32,
    uuid,
)


class Inner(Struct):
    number: int = int32("0+")
    later: int = int8("2+", default=5)


class Sample(Message, versions="0-3", flexible="2+"):
    """Kinds and combinations that the protocol's own tables do not have yet."""

    ids: list[bytes] = array(uuid, "0+")
    ratio: float = float64("0+", default=1.5)
    size: int = uint32("1+", ignorable=True)
    names: list[str] | None = array(string, "0+", nullable="1+")
    inner: Inner = struct(Inner, "1+")
    maybe: Inner | None = struct(Inner, "2+", nullable="2+", default=None, tag=0, tagged="3+")


def test_versions() -> None:
    assert parse_versions("3-5") == range(3, 6)
    assert parse_versions("7") == range(7, 8)
    assert 0x7FFF in parse_versions("2+")
    assert 1 not in parse_versions("2+")


def test_constructors_take_keywords_with_kafkas_defaults() -> None:
    request = FetchRequest(max_wait_ms=500)
    assert (request.max_wait_ms, request.max_bytes, request.session_epoch) == (500, 0x7FFF_FFFF, -1)
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert request.topics == []
    assert request.topics is not FetchRequest().topics
    with pytest.raises(TypeError):
        FetchRequest(max_wait=500)  # type: ignore[call-arg]


def test_instances_have_slots_and_compare_by_value() -> None:
    topic = CreatableTopic(name="a")
    assert topic == CreatableTopic(name="a")
    assert topic != CreatableTopic(name="b")
    assert topic != TopicProduceData(name="a")
    assert "name='a'" in repr(topic)
    with pytest.raises(AttributeError):
        topic.nmae = "b"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(topic)


@pytest.mark.parametrize("version", Sample.VERSIONS)
def test_kinds_that_only_this_sample_has(version: int) -> None:
    message = Sample(ids=[bytes(16), b"\1" * 16], ratio=-0.25, names=["a", ""])
    if version >= 1:
        message.size = 0xFFFF_FFFF
        message.inner.number = 9
        message.names = None
    if version >= 2:
        message.maybe = Inner(number=3, later=4)
    assert Sample.decode(message.encode(version), version) == message


def test_a_field_leaves_the_row_when_it_becomes_tagged() -> None:
    null = Sample()
    assert null.encode(2).endswith(b"\xff\x00")  # in the row: null takes a byte
    assert null.encode(3)[:-1] == null.encode(2)[:-2]
    assert Sample(maybe=Inner()).encode(3).endswith(b"\x01\x00\x07\x01\0\0\0\0\x05\0")


def test_a_field_that_the_version_lacks() -> None:
    with pytest.raises(WireError, match=r"v1, field maybe: this version has no such field"):
        Sample(maybe=Inner()).encode(1)
    with pytest.raises(WireError, match=r"v0, field inner: .* no such field"):
        Sample(inner=Inner(number=1)).encode(0)
    with pytest.raises(WireError, match=r"v1, field inner\.later: "):
        Sample(inner=Inner(later=6)).encode(1)
    ignorable = Sample(size=4)
    assert Sample.decode(ignorable.encode(0), 0).size == 0


def test_absent_fields_decode_to_their_defaults() -> None:
    old = ListOffsetsRequest(replica_id=1, topics=[]).encode(1)
    assert ListOffsetsRequest.decode(old, 1) == ListOffsetsRequest(replica_id=1)
    assert FetchResponse.decode(FetchResponse().encode(4), 4) == FetchResponse()


def test_null_is_refused_where_the_version_has_none() -> None:
    nameless = MetadataResponse(topics=[MetadataResponseTopic(name=None)])
    assert MetadataResponse.decode(nameless.encode(12), 12) == nameless
    with pytest.raises(WireError, match=r"MetadataResponse v11, field topics\.name"):
        nameless.encode(11)
    with pytest.raises(WireError, match=r"MetadataRequest v0, field topics"):
        MetadataRequest(topics=None).encode(0)


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (ProduceRequest(acks=40_000), 3),
        (ProduceRequest(acks="all"), 3),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")]), 13),
        (ProduceRequest(topic_data=[TopicProduceData(name="\ud800")]), 9),
        (ProduceRequest(topic_data=[TopicProduceData(name="n" * 40_000)]), 3),
        (CreateTopicsRequest(topics=[None]), 7),  # type: ignore[list-item]
        (CreateTopicsRequest(topics=7), 7),  # type: ignore[arg-type]
        (MetadataResponse(topics=[MetadataResponseTopic(name=5)]), 9),  # type: ignore[arg-type]
    ],
)
def test_values_that_do_not_fit(message: Message, version: int) -> None:
    with pytest.raises(WireError, match="field "):
        message.encode(version)


@pytest.mark.parametrize("version", [-1, 2, 14])
def test_versions_outside_the_range(version: int) -> None:
    with pytest.raises(WireError, match="the versions are 3 to 13"):
        ProduceRequest.decode(b"", version)
    with pytest.raises(WireError, match="the versions are 3 to 13"):
        ProduceRequest().encode(version)


def test_records_are_views_of_the_frame_and_pass_through_uncopied() -> None:
    records = memoryview(bytearray(b"r" * 5000))
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    assert any(part is records for part in request.encode_parts(9))
    frame = bytearray(request.encode(9))
    seen = ProduceRequest.decode(memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert isinstance(seen, memoryview)
    assert seen.obj is frame
    assert seen == records


def test_an_error_does_not_drag_the_codecs_own_along() -> None:
    with pytest.raises(WireError) as caught:
        ProduceRequest.decode(bytes(3), 9)
    assert caught.value.__context__ is None
