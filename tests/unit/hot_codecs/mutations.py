"""Bytes that are almost right, and how long to go on making them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random

FUZZ_SECONDS_DEFAULT = 1.0
_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_LENGTHS = (-(2**31), -2, -1, 0, 1, 2**15, 2**16, 2**31 - 1)


def rounds(share: float = 1.0) -> Iterator[int]:
    """Counts up until `share` of FUZZ_SECONDS (about a second when it is not set) is over."""
    end = time.monotonic() + share * float(os.environ.get("FUZZ_SECONDS", FUZZ_SECONDS_DEFAULT))
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1


def mutated(raw: bytes, rng: Random) -> bytes:
    """`raw` with a few changes of the kinds that break parsers."""
    out = bytearray(raw)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes((rng.choice(_BYTES),))
            case 1:
                out[at : at + 4] = rng.choice(_LENGTHS).to_bytes(4, "big", signed=True)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                # A varint with its continuation bits set as far as it goes.
                out[at : at + 1] = b"\xff" * rng.randrange(1, 6)
    return bytes(out)
