"""A range of a segment that is ready to be read: the fetch path.

`LogSlice.read` and `LogSlice.to_send` may run in any thread. They check the CRC of every whole
batch, so that damaged data is reported and never served; a batch that the range cuts off is left
out. Data that was written or checked in the last seconds is not checked again and can go from the
page cache to a socket without being read: a `fresh` slice holds whole batches that were just
written, and `RecentChecks` knows ranges that another reader has checked. Encrypted data is always
read and decrypted; `size` is then what it takes in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import Struct
from typing import Final

from crc32c import crc32c

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.file_region import FileRegion
from penstock.log.batch_search import not_a_batch
from penstock.log.files import LogFile
from penstock.log.limits import READ_AHEAD_BYTES, UNREAD_BYTES_MIN
from penstock.log.recent_checks import Checked
from penstock.log.sealing import Seal, Unsealable
from penstock.wire.records import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC

# Length, magic and CRC of a batch; the rest of the header is the reader's business.
_CHECK: Final = Struct(">8xi4xbI")
_LAST_OFFSET: Final = Struct(">q15xi")  # base offset and last offset delta
_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_PROBE: Final = bytearray(1)


class LogSlice:
    """`size` bytes of batches that begin at a batch boundary."""

    __slots__ = (
        "_data",
        "_on_corrupt",
        "base_offset",
        "end_offset",
        "file",
        "fresh",
        "position",
        "room",
        "size",
    )

    def __init__(
        self,
        file: LogFile,
        position: int,
        size: int,
        base_offset: int,
        end_offset: int,
        on_corrupt: Callable[[CorruptRecord], None],
        data: bytes | None = None,
        *,
        room: int = 0,
        fresh: bool = False,
    ) -> None:
        """`data`: the bytes, if they were just written; their CRCs were checked on append."""
        self.file = file
        self.position = position
        self.size = size
        self.base_offset = base_offset
        """The base offset of the first batch, which may lie below the offset that was asked for."""
        self.end_offset = end_offset
        """Once it has been read: the offset after its last whole batch."""
        self.room = room or size
        """How much of the request's byte limit it uses: as if it had been cut off within a batch.
        """
        self.fresh = fresh
        self._on_corrupt = on_corrupt
        self._data = data

    def to_send(self, *, nowait: bool = False) -> bytes | memoryview | FileRegion:
        """Like `read`, for a caller that only sends the data: a large range that was checked
        recently is a region of the file, which goes from the page cache to the socket.
        """
        file = self.file
        if (
            self._data is None
            and self.size >= UNREAD_BYTES_MIN
            and file.seal is None
            and file.has_room_for_region()
        ):
            size = self._good_bytes()
            if size:
                return self._region(size, nowait)
        return self.read(nowait=nowait)

    def _good_bytes(self) -> int:
        """How many bytes are known to be good whole batches; 0 if the range must be read."""
        if self.fresh:
            return self.size
        file = self.file
        found = file.checks.get((file, self.position, self.size))
        if found is None:
            return 0
        self.end_offset = found.end_offset
        return found.size

    def _region(self, size: int, nowait: bool) -> FileRegion:
        try:
            region = self.file.region(self.position, size)
        except OSError as e:
            raise StorageError(f"cannot open {self.file.path}: {e}") from e
        if nowait:
            self._probe(region.fd)
        return region

    def read(self, *, nowait: bool = False) -> bytes | memoryview:
        """The whole batches of the slice, each with a good CRC; else `CorruptRecord` says where.

        With `nowait`, BlockingIOError when the page cache does not have the slice.
        """
        if self._data is not None:
            return self._data
        file = self.file
        began = file.checks.begin(file)
        try:
            fd = file.pin()
            try:
                if nowait:
                    self._probe(fd)
                data = os.pread(fd, self.size, self.position)
            finally:
                file.unpin()
        except BlockingIOError:
            raise
        except OSError as e:
            raise StorageError(f"cannot read {file.path}: {e}") from e
        if file.seal is not None:
            return self._open(data, file.seal)
        size = self._check(data)
        file.checks.put((file, self.position, self.size), Checked(size, self.end_offset), began)
        return data if size == len(data) else memoryview(data)[:size]

    def _open(self, stored: bytes, seal: Seal) -> bytes:
        """The whole batches in `stored`, decrypted."""
        try:
            data, last = seal.open_whole(stored)
        except Unsealable as e:
            raise self._corrupt(e.position, e.what) from None
        if last >= 0:
            base_offset, delta = _LAST_OFFSET.unpack_from(data, last)
            self.end_offset = base_offset + delta + 1
        return data

    def _check(self, data: bytes) -> int:
        """How many bytes of `data` are whole batches."""
        view = memoryview(data)
        end, pos, unpack = len(data), 0, _CHECK.unpack_from
        whole = end - CRC_START
        last = -1
        while pos <= whole:
            length, magic, crc = unpack(data, pos)
            after = pos + length + LOG_OVERHEAD
            if magic != MAGIC or length < _LENGTH_MIN:
                raise self._not_a_batch(pos, magic, length)
            if after > end:
                break
            if crc32c(view[pos + CRC_START : after]) != crc:
                raise self._corrupt(pos, "the CRC does not match")
            last, pos = pos, after
        if last >= 0:
            base_offset, delta = _LAST_OFFSET.unpack_from(data, last)
            self.end_offset = base_offset + delta + 1
        return pos

    def _probe(self, fd: int) -> None:
        """Ask for the first and the last byte without waiting for the disk.

        Read-ahead brings what lies between; reading all of it without waiting would cost a third
        more (the buffer must be made, and zeroed, before).
        """
        try:
            for position in (self.position, self.position + self.size - 1):
                os.preadv(fd, [_PROBE], position, os.RWF_NOWAIT)
        except BlockingIOError:
            raise
        except OSError:
            return  # the file system does not support this: read, even if that blocks

    def nears_the_unread(self) -> bool:
        """Whether a reader that continues here will soon pass the end of the read-ahead."""
        ahead_to = self.file.ahead_to
        return self.position < ahead_to <= self.position + self.size + READ_AHEAD_BYTES // 2

    def read_ahead(self) -> None:
        """Ask the page cache to read what follows the slice. Does not wait; any thread may call it.
        A failure has no effect.
        """
        file, end = self.file, self.position + self.size
        start = max(end, file.ahead_to) if self.position < file.ahead_to else end
        file.ahead_to = end + READ_AHEAD_BYTES
        try:
            fd = file.pin()
            try:
                os.posix_fadvise(fd, start, file.ahead_to - start, os.POSIX_FADV_WILLNEED)
            finally:
                file.unpin()
        except OSError:
            return

    def _not_a_batch(self, at: int, magic: int, length: int) -> StorageError:
        error = not_a_batch(self.file, self.position + at, magic, length)
        if isinstance(error, CorruptRecord):
            self._on_corrupt(error)
        return error

    def _corrupt(self, at: int, what: str) -> CorruptRecord:
        error = CorruptRecord(f"{self.file.path} at position {self.position + at}: {what}")
        self._on_corrupt(error)
        return error
