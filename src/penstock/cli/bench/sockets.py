"""Non-blocking connections of the raw load: whole frames out, whole frames in.

`kafka.connection` opens them, with TLS and SASL where the cluster wants that; a session that the
broker limits is not renewed. One thread owns them all, by epoll; nothing here waits except `epoll`
and the opening.
"""

from __future__ import annotations

import select
import ssl
import struct
from collections.abc import Iterator

from penstock.cli.errors import CliError
from penstock.kafka.client import Address, Client, place, why
from penstock.kafka.connection import Connection

CLIENT = Client("penstock-bench")
RECEIVE_BYTES_INITIAL = 64 * 1024
LENGTH_BYTES = 4
_LENGTH = struct.Struct(">i")
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class FrameSocket:
    """One connection; `send` takes a whole frame and keeps what the kernel does not take at
    once.
    """

    __slots__ = ("_buffer", "_epoll", "_got", "_left", "_sock", "_tls", "_waiting", "fd")

    def __init__(self, address: Address, epoll: select.epoll, client: Client = CLIENT) -> None:
        self._sock = connect(address, client).detach()
        self._sock.setblocking(False)
        self._tls = self._sock if isinstance(self._sock, ssl.SSLSocket) else None
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
        except _NOT_NOW:
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
        return self._receive() if self._tls is None else self._receive_tls(self._tls)

    def _receive_tls(self, tls: ssl.SSLSocket) -> Iterator[memoryview]:
        yield from self._receive()
        while tls.pending():  # of which epoll knows nothing
            yield from self._receive()

    def _receive(self) -> Iterator[memoryview]:
        try:
            read = self._sock.recv_into(self._buffer[self._got :])
        except _NOT_NOW:
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


def connect(address: Address, client: Client) -> Connection:
    """A connection, or the sentence that there is none."""
    try:
        return Connection(address, client)
    except OSError as e:
        raise CliError(
            f"cannot connect to {place(address)} ({why(e)}): is the broker up?"
        ) from None


def _lost(error: OSError | None) -> CliError:
    said = why(error) if error is not None else "closed by the broker"
    return CliError(f"lost the connection to the broker ({said}): look at the broker's log")
