"""Hostile bytes for the one hand-tuned decoder: a value or a WireError, soon."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from penstock.wire.errors import WireError
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.produce_codec import decode_produce_request
from unit.hot_codecs.mutations import mutated, rounds
from unit.wire.random_messages import random_struct

DECODE_SECONDS_MAX = 1.0  # far above what a frame of this size takes, far below a stall
SEED = 20_261_115


def owned(records: bytes | memoryview | None) -> bytes | None:
    return None if records is None else bytes(records)


def decoded(raw: bytes, version: int) -> Any:
    """What the hand-tuned decoder makes of `raw`; None for a WireError, in bounded time."""
    began = time.thread_time()
    try:
        return decode_produce_request(memoryview(raw), 0, version)
    except WireError:
        return None
    finally:
        assert time.thread_time() - began < DECODE_SECONDS_MAX, raw


def test_fuzz_random_bytes() -> None:
    rng = Random(SEED)
    for _ in rounds(0.5):
        raw = rng.randbytes(rng.randrange(300))
        for version in ProduceRequest.VERSIONS:
            decoded(raw, version)


def test_fuzz_mutated_requests_agree_with_the_generated_decoder() -> None:
    """What the strict, generated decoder accepts, the hand-tuned one reads the same way."""
    rng = Random(SEED)
    accepted = refused = 0
    for number in rounds():
        version = ProduceRequest.VERSIONS[number % len(ProduceRequest.VERSIONS)]
        raw = mutated(random_struct(ProduceRequest, version, rng).encode(version), rng)
        body = decoded(raw, version)
        try:
            request, _ = ProduceRequest.decode_from(memoryview(raw), 0, version)
        except WireError:
            refused += 1
            continue
        accepted += 1
        assert body is not None, (version, raw)
        assert (body.transactional_id, body.acks, body.timeout_ms) == (
            request.transactional_id,
            request.acks,
            request.timeout_ms,
        )
        assert [(t, [(i, owned(r)) for i, r in ps]) for t, ps in body.topics] == [
            (
                topic.topic_id if version >= 13 else topic.name,
                [(p.index, owned(p.records)) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    assert accepted
    assert refused


def test_fuzz_nested_counts() -> None:
    """Counts that announce more than there is end with the frame, not with the memory."""
    rng = Random(SEED)
    heads = (b"\x00" + b"\x00\x01" + b"\0\0\0\0", b"\xff\xff" + b"\x00\x01" + b"\0\0\0\0")
    for _ in rounds(0.3):
        body = rng.choice((b"\x7f", b"\xff\xff\x3f", b"\x02", b"\x00\x00\x00\x7f", b"\x00\x01"))
        raw = rng.choice(heads) + body * rng.randrange(1, 2000)
        for version in (3, 8, 9, 13):
            decoded(raw, version)
