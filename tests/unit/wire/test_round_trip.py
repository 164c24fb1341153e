"""What is encoded decodes to itself: every message, every version, bytes and memoryview."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.schema import Message
from unit.wire.random_messages import all_message_versions, all_messages, random_struct

MESSAGES = all_messages()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_random_messages(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        for seed in range(4):
            message = random_struct(cls, version, Random(f"{cls.__name__}-{version}-{seed}"))
            raw = message.encode(version)
            assert cls.decode(raw, version) == message
            assert cls.decode(memoryview(raw), version) == message


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_any_message(data: st.DataObject) -> None:
    cls, version = data.draw(st.sampled_from(list(all_message_versions())))
    message = random_struct(cls, version, data.draw(st.randoms(use_true_random=False)))
    before, after = b"before", b"after"
    out = bytearray(before)
    message.encode_into(out, version)
    assert b"".join(message.encode_parts(version)) == message.encode(version)
    decoded, pos = cls.decode_from(bytes(out) + after, len(before), version)
    assert decoded == message
    assert pos == len(out)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_defaults(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        if any(f.kind == "records" and version not in f.nullable for f in cls.FIELDS):
            continue
        assert cls.decode(cls().encode(version), version) == cls()
