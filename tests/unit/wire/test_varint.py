from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.varint import read_unsigned_varint, unsigned_varint


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_round_trip(value: int, after: bytes) -> None:
    raw = unsigned_varint(value)
    assert len(raw) == max(1, (value.bit_length() + 6) // 7)
    assert read_unsigned_varint(b"x" + raw + after, 1) == (value, 1 + len(raw))


@pytest.mark.parametrize("value", [-1, 2**32])
def test_values_outside_32_bits(value: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        unsigned_varint(value)


@pytest.mark.parametrize("raw", [b"\x80" * 6, b"\xff\xff\xff\xff\x10"])
def test_what_is_too_long(raw: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_unsigned_varint(raw, 0)


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xff\xff"])
def test_what_has_no_end(raw: bytes) -> None:
    with pytest.raises(IndexError):
        read_unsigned_varint(raw, 0)
