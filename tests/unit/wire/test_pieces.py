"""Elements that were encoded ahead: the same bytes, in every version, and the same error codes."""

from __future__ import annotations

from random import Random

import pytest

from penstock.wire.errors import WireError
from penstock.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.pieces import piece_bytes
from unit.wire.random_messages import random_struct


@pytest.mark.parametrize("version", MetadataResponse.VERSIONS)
def test_pieces_are_what_their_elements_are(version: int) -> None:
    for seed in range(20):
        rng = Random(f"{version}-{seed}")
        answer = random_struct(MetadataResponse, version, rng)
        plain = answer.encode(version)
        codes = sorted(answer.error_codes())
        # Some encoded ahead, some not, and all of them used twice.
        for share in (0.5, 1.0):
            answer.topics = [
                MetadataResponse.piece(topic, version) if rng.random() < share else topic
                for topic in MetadataResponse.decode(plain, version).topics
            ]
            assert answer.encode(version) == plain
            assert answer.encode(version) == plain
            assert sorted(answer.error_codes()) == codes


def test_error_codes_are_found_at_any_depth() -> None:
    partitions = [MetadataResponsePartition(error_code=code) for code in (0, 5, 9)]
    topic = MetadataResponseTopic(name="t", error_code=3, partitions=partitions)
    piece = MetadataResponse.piece(topic, 12)
    assert list(topic.error_codes()) == list(piece.error_codes()) == [3, 5, 9]
    assert list(MetadataResponse(topics=[piece, topic]).error_codes()) == [3, 5, 9] * 2
    assert list(MetadataResponse(topics=[piece], error_code=7).error_codes()) == [3, 5, 9, 7]


def test_a_piece_of_nonsense_is_refused_with_the_field() -> None:
    nonsense = MetadataResponseTopic(name=5)  # type: ignore[arg-type]
    with pytest.raises(WireError, match=r"MetadataResponseTopic v9, field name"):
        MetadataResponse.piece(nonsense, 9)
    with pytest.raises(WireError, match="versions are 0 to 13"):
        MetadataResponse.piece(MetadataResponseTopic(name="t"), 14)


def test_size() -> None:
    topic = MetadataResponseTopic(name="t")
    empty = len(MetadataResponse().encode(12))
    one = MetadataResponse(topics=[topic]).encode(12)
    assert piece_bytes(MetadataResponse.piece(topic, 12)) == len(one) - empty
