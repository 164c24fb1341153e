"""Record batches as they are stored in an encrypted segment: the codec.

A stored batch is its header, in clear, with another magic and the stored length; a random nonce;
the records, encrypted by AES-256-GCM; the tag. The tag also covers the header, and which partition
of which topic it is, so that neither can be changed. So every search that goes from header to
header works as in a plain segment, and each batch is `SEALED_EXTRA` bytes longer.

The CRC of the plain batch would tell whoever guesses a short message that the guess is right. It
stands in the header under a mask that is made from the nonce by a key of its own; what comes out is
byte for byte the batch that came in, and its CRC is checked like any other.

Nonces are random, 96 bits, under a data key that is one segment's: far from the 2^32 batches from
which on two could be alike. A `Seal` may be used by any thread. Nothing here waits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b, blake2s
from struct import Struct
from typing import Final

from crc32c import crc32c

from penstock.base.errors import CorruptRecord
from penstock.keys.cipher import aes_gcm, not_authentic
from penstock.wire.records import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC

SEALED_MAGIC: Final = 112
"""In the place of the magic of an encrypted batch: no version of Kafka has it, and nobody but a log
takes it.
"""
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SEALED_EXTRA: Final = NONCE_BYTES + TAG_BYTES
"""By how many bytes a stored batch is longer than the plain one."""

_PREFIX: Final = Struct(">qii")
_HEAD: Final = Struct(">qiibI")  # the header up to and with the CRC
_CRC_IN_REST: Final = Struct(">xI")
_REST_START: Final = _PREFIX.size
_ATTRIBUTES_IN_REST: Final = CRC_START - _REST_START
_RECORDS_IN_REST: Final = HEADER_SIZE - _REST_START
_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD + SEALED_EXTRA
_BODY_START: Final = HEADER_SIZE + NONCE_BYTES
_MASK_BYTES: Final = 4


class Seal:
    """What encrypts and decrypts the batches of one segment."""

    __slots__ = ("_cipher", "_context", "_mask_key", "_not_authentic", "secret")

    def __init__(self, secret: bytes, context: bytes) -> None:
        """`context` says which partition it is; it is authenticated with each batch."""
        self.secret = secret
        self._cipher = aes_gcm(secret)
        self._context = context
        self._mask_key = blake2b(key=secret, person=b"penstock-crc", digest_size=32).digest()
        self._not_authentic = not_authentic()

    def __repr__(self) -> str:
        return "<Seal>"

    def _mask(self, nonce: bytes) -> int:
        mask = blake2s(nonce, key=self._mask_key, digest_size=_MASK_BYTES).digest()
        return int.from_bytes(mask, "big")

    # Encrypting

    def sealed(self, buffers: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
        """Staged buffers, two for each batch (its first 16 bytes and the rest), encrypted."""
        stored: list[bytes | memoryview] = []
        nonces = os.urandom(NONCE_BYTES * (len(buffers) // 2))
        for i in range(0, len(buffers), 2):
            at = i // 2 * NONCE_BYTES
            stored += self._seal(buffers[i], buffers[i + 1], nonces[at : at + NONCE_BYTES])
        return stored

    def seal_batch(self, batch: bytes) -> bytes:
        """One whole batch, encrypted."""
        rest = memoryview(batch)[_REST_START:]
        return b"".join(self._seal(batch[:_REST_START], rest, os.urandom(NONCE_BYTES)))

    def _seal(
        self, prefix: bytes | memoryview, rest: bytes | memoryview, nonce: bytes
    ) -> tuple[bytes, bytes]:
        base_offset, length, epoch = _PREFIX.unpack(prefix)
        (crc,) = _CRC_IN_REST.unpack_from(rest)
        head = _HEAD.pack(
            base_offset, length + SEALED_EXTRA, epoch, SEALED_MAGIC, crc ^ self._mask(nonce)
        ) + bytes(rest[_ATTRIBUTES_IN_REST:_RECORDS_IN_REST])
        body: bytes = self._cipher.encrypt(nonce, rest[_RECORDS_IN_REST:], self._context + head)
        return head + nonce, body

    # Decrypting

    def open_batch(self, stored: bytes | memoryview) -> bytes:
        """The plain batch of one whole stored one; `CorruptRecord` if a bit of it is wrong."""
        view = memoryview(stored)
        if len(view) < HEADER_SIZE or stored_size(view, 0) != len(view):
            raise CorruptRecord(f"{len(view)} bytes are no encrypted batch")
        return b"".join(self._open(view, 0, len(view)))

    def open_whole(self, stored: bytes) -> tuple[bytes, int]:
        """The plain batches of those that lie whole in `stored`, and the position of the last
        plain one, -1 if there is none. `Unsealable` says where a bit is wrong.
        """
        view, end, position = memoryview(stored), len(stored), 0
        parts: list[bytes] = []
        size, last = 0, -1
        while position + HEADER_SIZE <= end:
            try:
                after = position + stored_size(view, position)
                if after > end:
                    break
                head, body = self._open(view, position, after)
            except CorruptRecord as e:
                raise Unsealable(position, str(e)) from e
            last, size = size, size + len(head) + len(body)
            parts += (head, body)
            position = after
        return b"".join(parts), last

    def _open(self, view: memoryview, position: int, after: int) -> tuple[bytes, bytes]:
        body_start = position + _BODY_START
        head = bytes(view[position : position + HEADER_SIZE])
        nonce = bytes(view[position + HEADER_SIZE : body_start])
        try:
            body: bytes = self._cipher.decrypt(nonce, view[body_start:after], self._context + head)
        except self._not_authentic:
            raise CorruptRecord("an encrypted batch was damaged or changed") from None
        base_offset, length, epoch, _, masked = _HEAD.unpack_from(head)
        crc = masked ^ self._mask(nonce)
        inside = head[CRC_START:]
        if crc32c(body, crc32c(inside)) != crc:
            raise CorruptRecord("the CRC of a decrypted batch does not match")
        return _HEAD.pack(base_offset, length - SEALED_EXTRA, epoch, MAGIC, crc) + inside, body


class Unsealable(CorruptRecord):
    """A batch at `position` of what was to be decrypted is damaged."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what


def stored_size(view: memoryview, position: int) -> int:
    """The size that the header at `position` claims, of an encrypted batch."""
    _, length, _, magic, _ = _HEAD.unpack_from(view, position)
    if magic != SEALED_MAGIC or length < _LENGTH_MIN:
        raise CorruptRecord(f"not an encrypted batch: magic {magic}, length {length}")
    return int(length) + LOG_OVERHEAD
