"""Parts of messages that are encoded once and sent many times.

A wide answer consists of many elements that seldom change, such as the topics of Metadata. In an
array whose table says `pieces=True` a `Piece` may stand in an element's place: its bytes, as they
are in one version of the message. `Message.piece` makes one. Its type is that of the element, so
that code that fills the array treats both alike; only the encoder reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast


class Piece:
    """An element of an array: its bytes, and the error codes in it."""

    __slots__ = ("_codes", "data")

    def __init__(self, data: bytes, codes: tuple[int, ...]) -> None:
        self.data = data
        self._codes = codes

    def error_codes(self) -> Iterator[int]:
        return iter(self._codes)


def piece_bytes(piece: object) -> int:
    """The size of what `Message.piece` gave."""
    return len(cast(Piece, piece).data)
