"""Plain non-blocking connections of the raw load: whole frames out, whole frames in.

One thread owns them all, by epoll; nothing here waits except `epoll`.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

from penstock.cli.errors import CliError

CONNECT_TIMEOUT_S = 10.0
RECEIVE_BYTES_INITIAL = 64 * 1024
LENGTH_BYTES = 4
_LENGTH = struct.Struct(">i")


class FrameSocket:
    """One connection; `send` takes a whole frame and keeps what the kernel does not take at
    once.
    """

    __slots__ = ("_buffer", "_epoll", "_got", "_left", "_sock", "_waiting", "fd")

    def __init__(self, address: tuple[str, int], epoll: select.epoll) -> None:
        try:
            self._sock = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
            where = f"{address[0]}:{address[1]}"
            raise CliError(f"cannot connect to {where} ({reason}): is the broker up?") from None
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setblocking(False)
        self._epoll = epoll
        self._buffer = memoryview(bytearray(RECEIVE_BYTES_INITIAL))
        self._got = 0
        self._left: memoryview | None = None
        self._waiting = False
        self.fd = self._sock.fileno()
        epoll.register(self.fd, select.EPOLLIN)

    @property
    def sending(self) -> bool:
        """Whether part of a frame still waits for the kernel; the frame must not be changed
        then.
        """
        return self._left is not None

    def send(self, frame: bytearray) -> bool:
        """Begin to send `frame`; True when the kernel took all of it."""
        self._left = memoryview(frame)
        return self.send_rest()

    def send_rest(self) -> bool:
        """Go on sending; True when nothing is left."""
        if self._left is None:
            return True
        try:
            sent = self._sock.send(self._left)
        except BlockingIOError:
            sent = 0
        except OSError as e:
            raise _lost(e) from None
        self._left = self._left[sent:] if sent < len(self._left) else None
        waits = self._left is not None
        if waits != self._waiting:
            self._waiting = waits
            events = select.EPOLLIN | select.EPOLLOUT if waits else select.EPOLLIN
            self._epoll.modify(self.fd, events)
        return not waits

    def receive(self) -> Iterator[memoryview]:
        """The frames (without length) that have arrived whole; each is valid until the next is
        asked for.
        """
        try:
            read = self._sock.recv_into(self._buffer[self._got :])
        except BlockingIOError:
            return
        except OSError as e:
            raise _lost(e) from None
        if not read:
            raise _lost(None)
        buffer, end = self._buffer, self._got + read
        pos, needed = 0, LENGTH_BYTES
        while end - pos >= LENGTH_BYTES:
            needed = LENGTH_BYTES + _LENGTH.unpack_from(buffer, pos)[0]
            if end - pos < needed:
                break
            yield buffer[pos + LENGTH_BYTES : pos + needed]
            pos += needed
            needed = LENGTH_BYTES
        self._keep(buffer[pos:end], needed)

    def _keep(self, rest: memoryview, frame_bytes: int) -> None:
        """Moves the begun frame to the front of a buffer that can hold all of it."""
        if frame_bytes > len(self._buffer):
            self._buffer = memoryview(bytearray(frame_bytes))
        if rest.nbytes:
            self._buffer[: len(rest)] = rest
        self._got = len(rest)

    def close(self) -> None:
        self._epoll.unregister(self.fd)
        self._sock.close()


def _lost(error: OSError | None) -> CliError:
    why = (error.strerror or str(error)).lower() if error is not None else "closed by the broker"
    return CliError(f"lost the connection to the broker ({why}): look at the broker's log")
