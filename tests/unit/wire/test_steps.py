"""Codecs in steps: the same bytes, messages and errors, with places to stop at."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from penstock.base.steps import Steps, at_once
from penstock.wire.codegen import ELEMENTS_PER_STEP
from penstock.wire.errors import WireError
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.schema import Message
from unit.wire.random_messages import all_message_versions, random_struct


def stops(steps: Steps[object]) -> int:
    return sum(1 for _ in steps)


def many(partitions: int) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=i) for i in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])


@pytest.mark.parametrize(
    ("cls", "version"),
    list(all_message_versions()),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_message_is_the_same_in_steps(cls: type[Message], version: int) -> None:
    message = random_struct(cls, version, Random(version))
    encoded = message.encode(version)
    assert at_once(message.encode_in_steps(version)) == encoded
    decoded, end = at_once(cls.decode_in_steps(memoryview(b"?" + encoded), 1, version))
    assert (decoded, end) == cls.decode_from(memoryview(b"?" + encoded), 1, version)


@pytest.mark.parametrize("version", [1, 7])
def test_both_stop_after_so_many_elements(version: int) -> None:
    few, lots = many(ELEMENTS_PER_STEP // 2), many(10 * ELEMENTS_PER_STEP)
    for message, expected in ((few, 0), (lots, 10)):
        encoded = message.encode(version)
        assert stops(message.encode_in_steps(version)) == expected
        assert stops(ListOffsetsRequest.decode_in_steps(encoded, 0, version)) == expected


def test_a_message_that_is_cut_off_is_explained_alike() -> None:
    encoded = many(3 * ELEMENTS_PER_STEP).encode(7)[:-5]
    with pytest.raises(WireError) as at_once_:
        ListOffsetsRequest.decode_from(encoded, 0, 7)
    with pytest.raises(WireError) as in_steps:
        at_once(ListOffsetsRequest.decode_in_steps(encoded, 0, 7))
    assert str(in_steps.value) == str(at_once_.value)


def test_a_message_that_cannot_be_encoded_is_explained_alike() -> None:
    message = many(3 * ELEMENTS_PER_STEP)
    message.topics[0].partitions[-1].timestamp = 2**70
    with pytest.raises(WireError) as at_once_:
        message.encode(7)
    with pytest.raises(WireError) as in_steps:
        at_once(message.encode_in_steps(7))
    assert str(in_steps.value) == str(at_once_.value)


def test_a_piece_is_the_same_in_steps() -> None:
    partitions = [MetadataResponsePartition(partition_index=i) for i in range(1_000)]
    partitions[7].error_code = 5
    topic = MetadataResponseTopic(name="t", partitions=partitions)
    piece = at_once(MetadataResponse.piece_in_steps(topic, 12))
    assert stops(MetadataResponse.piece_in_steps(topic, 12)) == 1_000 // ELEMENTS_PER_STEP
    assert MetadataResponse(topics=[piece]).encode(12) == MetadataResponse(topics=[topic]).encode(
        12
    )
    assert list(piece.error_codes()) == [5]


def test_elements_are_counted_at_every_depth() -> None:
    request = many(10)
    assert request.has_more_than(10)
    assert not request.has_more_than(11)
    request.topics.append(ListOffsetsTopic(name="u"))
    assert request.has_more_than(11)
    assert not ListOffsetsRequest().has_more_than(0)


def test_each_code_can_be_stopped_at() -> None:
    partitions = [ListOffsetsPartitionResponse(error_code=3 * (i == 2)) for i in range(1_000)]
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=partitions)])
    assert list(islice(response.each_code(), 4)) == [0, 0, 3, 0]
    assert list(response.error_codes()) == [3]
