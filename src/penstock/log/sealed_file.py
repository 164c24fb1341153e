"""A file that is encrypted as a whole, in chunks, so that any part of it can be read by itself.

`SEALED_FILE` and the length of what follows; the key file's line (`key_file`); then chunks of
`CHUNK_BYTES` of the plain file, the last one shorter, each behind its nonce and before its tag. A
tag covers the file's name, the chunk's number and whether it is the last one: nothing can be taken
out, moved or cut off. Positions and sizes outside this module are those of the plain file.

Used for snapshots of the metadata. Any thread may use a writer or a reader, one at a time.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Final

from penstock.base.errors import CorruptRecord
from penstock.keys.cipher import aes_gcm, not_authentic
from penstock.keys.data_keys import DataKey, DataKeys
from penstock.keys.provider import KeyUnavailable
from penstock.log.key_file import KeyFile, parse_key_file
from penstock.log.sealing import NONCE_BYTES, TAG_BYTES

SEALED_FILE: Final = b"PENSTK\x00\x01"
CHUNK_BYTES: Final = 64 * 1024
_LENGTH: Final = Struct(">I")
_PLACE: Final = Struct(">Q?")
_HEAD_BYTES: Final = len(SEALED_FILE) + _LENGTH.size
_STORED_CHUNK: Final = NONCE_BYTES + CHUNK_BYTES + TAG_BYTES
_LINE_BYTES_MAX: Final = 64 * 1024


class SealedWriter:
    """Turns a plain file, in pieces, into what is to be written."""

    def __init__(self, key: DataKey, key_file: KeyFile, name: str) -> None:
        self._cipher = aes_gcm(key.secret)
        self._name = name.encode()
        self._pending = bytearray()
        self._number = 0
        self.head = head_of(key_file)

    def add(self, data: bytes | memoryview) -> bytes:
        """The bytes to write after this piece: the last chunk is held back until `end`."""
        pending = self._pending
        pending += data
        stored = []
        while len(pending) > CHUNK_BYTES:
            stored.append(self._chunk(pending[:CHUNK_BYTES], last=False))
            del pending[:CHUNK_BYTES]
        return b"".join(stored)

    def end(self) -> bytes:
        """The last chunk."""
        return self._chunk(self._pending, last=True)

    def _chunk(self, data: bytearray, *, last: bool) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        place = self._name + _PLACE.pack(self._number, last)
        self._number += 1
        sealed: bytes = self._cipher.encrypt(nonce, bytes(data), place)
        return nonce + sealed


def head_of(key_file: KeyFile) -> bytes:
    line = key_file.text()
    return SEALED_FILE + _LENGTH.pack(len(line)) + line


def read_head(fd: int, path: str) -> tuple[KeyFile, int] | None:
    """The key file in an encrypted file, and where its chunks begin; None if it is plain."""
    head = os.pread(fd, _HEAD_BYTES, 0)
    if not head.startswith(SEALED_FILE) or len(head) < _HEAD_BYTES:
        return None
    (size,) = _LENGTH.unpack_from(head, len(SEALED_FILE))
    line = os.pread(fd, min(size, _LINE_BYTES_MAX), _HEAD_BYTES)
    return parse_key_file(line, path), _HEAD_BYTES + len(line)


class SealedReader:
    """An encrypted file that is open; `name` is the one it was written under."""

    def __init__(
        self, fd: int, path: str, name: str, head: tuple[KeyFile, int], keys: DataKeys
    ) -> None:
        """`KeyUnavailable` if its key cannot be had."""
        key_file, self._start = head
        try:
            self._cipher = aes_gcm(keys.secret_of(key_file.wrapped))
        except KeyUnavailable as e:
            raise KeyUnavailable(f"{path} cannot be decrypted: {e}") from e
        self._fd, self._path, self._name = fd, path, name.encode()
        stored = os.fstat(fd).st_size - self._start
        self._chunks = max(-(-stored // _STORED_CHUNK), 1)
        self.size = max(stored - self._chunks * (NONCE_BYTES + TAG_BYTES), 0)
        """Of the plain file."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`, fewer only at the end; `CorruptRecord` if a bit of
        their chunks is wrong.
        """
        end = min(position + size, self.size)
        if position >= end:
            return b""
        first, last = position // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        data = b"".join(self._chunk(number) for number in range(first, last + 1))
        start = position - first * CHUNK_BYTES
        return data[start : start + end - position]

    def _chunk(self, number: int) -> bytes:
        stored = os.pread(self._fd, _STORED_CHUNK, self._start + number * _STORED_CHUNK)
        place = self._name + _PLACE.pack(number, number == self._chunks - 1)
        try:
            plain: bytes = self._cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], place)
        except (not_authentic(), ValueError):
            raise CorruptRecord(
                f"{self._path}: its chunk {number} was damaged or changed"
            ) from None
        return plain
