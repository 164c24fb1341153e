"""A region of an open file that is sent to a socket without passing through the process.

The log creates it, the codec of a response puts it between its buffers, the connection sends it.
Its file stays open while the region is referenced. It may be passed to another thread, but not used
by two at once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class FileRegion:
    """`size` bytes from `position` on; both change as bytes are sent or read."""

    __slots__ = ("_let_go", "fd", "position", "size")

    def __init__(self, fd: int, position: int, size: int, let_go: Callable[[], None]) -> None:
        self.fd = fd
        self.position = position
        self.size = size
        self._let_go = let_go

    def __del__(self) -> None:
        self._let_go()

    def __len__(self) -> int:
        return self.size

    def send_to(self, socket_fd: int, bytes_max: int) -> int:
        """Send what the socket takes now; BlockingIOError if it takes nothing.

        Where the file system does not support it, the sender must `read`, as if the socket were
        full.
        """
        try:
            sent = os.sendfile(socket_fd, self.fd, self.position, min(self.size, bytes_max))
        except OSError as e:
            if e.errno in _NO_SENDFILE:
                raise BlockingIOError(e.errno, e.strerror) from None
            raise
        self._take(sent)
        return sent

    def read(self, bytes_max: int) -> bytes:
        """Read the next bytes into memory, for a sender that cannot send from the file."""
        data = os.pread(self.fd, min(self.size, bytes_max), self.position)
        self._take(len(data))
        return data

    def _take(self, size: int) -> None:
        if not size:
            raise OSError(errno.ENODATA, f"{self.size} bytes at {self.position} were cut off")
        self.position += size
        self.size -= size
