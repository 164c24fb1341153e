"""How far a redrive has come in a partition of a dead-letter topic, as an offset that a group
commits.

Everything below the offset is done with. What is done above it is in the metadata of the commit: a
bit for each offset from there on, compressed, since dead letters that were chosen one by one or by
a filter lie scattered. Its size is bounded by the broker (`offset.metadata.max.bytes`): what would
not fit is refused before anything is redriven. Pure.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator
from typing import Final

METADATA_BYTES_MAX: Final = 4_000
"""Below 4,096, the broker's default."""
BITS_MAX: Final = 8_000_000
"""Offsets that a metadata may stand for when it is read: it might be another one's."""
FORM: Final = "1:"
"""In front of the bits, so that another form can be told apart."""


class TooScattered(Exception):
    """What is done cannot be remembered within METADATA_BYTES_MAX."""


class Done:
    """What is done with in one partition, while its messages are gone through in their order."""

    def __init__(self, offset: int = 0, metadata: str = "") -> None:
        self.offset = offset
        """Everything below is done with."""
        self._above = set(_offsets(offset, metadata))
        self._waits = False
        """Whether there is something at `offset` that is not done."""

    def __contains__(self, offset: int) -> bool:
        return offset < self.offset or offset in self._above

    def copy(self) -> Done:
        made = Done(self.offset)
        made._above, made._waits = set(self._above), self._waits
        return made

    def nothing_before(self, offset: int) -> None:
        """From the message before up to this offset there was nothing of interest."""
        if not self._waits and offset > self.offset:
            self.offset = offset

    def finish(self, offset: int) -> None:
        """This message is done with."""
        if self._waits:
            self._above.add(offset)
        else:
            self.nothing_before(offset + 1)

    def leave(self, offset: int) -> None:
        """This message is not done, and waits."""
        self.nothing_before(offset)
        self._waits = True

    @property
    def metadata(self) -> str:
        """What is done above the offset; `TooScattered` if it takes too much."""
        above = [offset for offset in self._above if offset >= self.offset]
        if not above:
            return ""
        bits = bytearray((max(above) - self.offset) // 8 + 1)
        for offset in above:
            place = offset - self.offset
            bits[place // 8] |= 1 << place % 8
        text = FORM + base64.b64encode(zlib.compress(bytes(bits), 9)).decode()
        if len(text) > METADATA_BYTES_MAX or len(bits) * 8 > BITS_MAX:
            raise TooScattered
        return text


def _offsets(offset: int, metadata: str) -> Iterator[int]:
    """The offsets of a metadata; none if it was written by somebody else."""
    if not metadata.startswith(FORM):
        return
    try:
        packed = base64.b64decode(metadata.removeprefix(FORM), validate=True)
        bits = zlib.decompressobj().decompress(packed, BITS_MAX // 8)
    except (binascii.Error, zlib.error):
        return
    for at, byte in enumerate(bits):
        if byte:
            for bit in range(8):
                if byte >> bit & 1:
                    yield offset + at * 8 + bit
