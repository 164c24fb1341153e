"""A stretch of an open file that goes to a socket without passing through the process.

The log makes it, the codec of an answer puts it among its buffers, the connection sends it. Its
file stays open until nobody has the region any more. It may change threads, but not be shared.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class FileRegion:
    """`size` bytes from `position` on; both move on with what was taken."""

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
        """Hand over what the socket takes now; BlockingIOError when that is nothing.

        Where a file system cannot do that, who sends has to `read` as if the socket were full.
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
        """Take what comes next into memory, for who cannot send it from the file."""
        data = os.pread(self.fd, min(self.size, bytes_max), self.position)
        self._take(len(data))
        return data

    def _take(self, size: int) -> None:
        if not size:
            raise OSError(errno.ENODATA, f"{self.size} bytes at {self.position} were cut off")
        self.position += size
        self.size -= size
