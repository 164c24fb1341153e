"""Answers that carry regions of files: from the page cache to the socket, past the transport.

The transport owns the socket. While its write buffer is empty, regions are sent to the socket
directly (`sendfile`), unless the connection is encrypted: then the transport is given all of it in
pieces. When the socket is full, the transport is given the next piece as bytes; it
waits for the peer and calls `resume_writing` when that piece is sent. So a slow peer costs the
memory of one piece, not of an answer.

Invariants: nothing is sent directly while the transport has bytes in its buffer (they come first),
or once it is closing (its descriptor may have been reused by then). Limits: `PIECE_BYTES`,
`TURN_BYTES_MAX`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Protocol, TypeAlias, cast

from penstock.base.file_region import FileRegion

Buffer: TypeAlias = bytes | bytearray | memoryview
Part: TypeAlias = Buffer | FileRegion

WRITE_BUFFER_HIGH_BYTES = 1024 * 1024
"""Unsent bytes in a transport before its connection stops reading (one answer may exceed it)."""
PIECE_BYTES = 64 * 1024
"""The size of the piece that the transport is given while the socket is full."""
TURN_BYTES_MAX = 4 * 1024 * 1024
"""Bytes sent to a peer that keeps up before other connections are served."""
_BUFFERS_MAX = 1_024  # of one system call
_MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
"""More follows at once: a small buffer is sent together with it and does not wake the
peer alone.
"""


class Streaming(Protocol):
    """What the stream needs of its connection."""

    def drain(self) -> None: ...


class AnswerStream:
    """Sends answers to one peer."""

    __slots__ = (
        "_connection",
        "_least_bytes",
        "_loop",
        "_sending",
        "_socket",
        "_transport",
        "_waited",
    )

    def __init__(
        self,
        connection: Streaming,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._loop = loop
        self._waited = False
        self._sending = False
        encrypted = transport.get_extra_info("sslcontext") is not None
        self._least_bytes = 1 if encrypted else 0
        """A limit at which a transport pauses with any byte in its buffer. One that encrypts pauses
        when the limit is reached, the others beyond it: at 0 it would pause while it is empty.
        """
        theirs = transport.get_extra_info("socket")
        self._socket: socket.socket | None = None
        if theirs is not None and not encrypted:
            # The same descriptor, for calls that transports do not have; given up by `close`.
            self._socket = socket.socket(
                theirs.family, theirs.type, theirs.proto, fileno=theirs.fileno()
            )

    def close(self) -> None:
        """The connection has ended, and with it the descriptor."""
        if self._socket is not None:
            self._socket.detach()

    def send(self, parts: deque[Part]) -> bool:
        """Send from the front of `parts`, and whether that was all of them. If not, the rest is
        sent when `Streaming.drain` calls again: in the next turn, or when the transport can go on.

        OSError when a file or the peer refuses: nothing more can be sent to it then.
        """
        if self._sending:
            return False  # a transport that encrypts calls `resume_writing` while limits are set
        self._sending = True
        try:
            return self._send_all(parts)
        finally:
            self._sending = False

    def _send_all(self, parts: deque[Part]) -> bool:
        transport, sent = self._transport, 0
        while parts:
            if transport.is_closing():
                return False
            if transport.get_write_buffer_size():
                self._wait_for_transport()
                return False
            if sent >= TURN_BYTES_MAX:
                self._loop.call_soon(self._connection.drain)
                return False
            try:
                sent += self._send_some(parts)
            except BlockingIOError:
                piece = _next_piece(parts)
                transport.write(piece)
                sent += len(piece)
        if self._waited:
            self._waited = False
            transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        return True

    def _send_some(self, parts: deque[Part]) -> int:
        if self._socket is None:
            raise BlockingIOError("a transport without a socket has to send everything itself")
        first = parts[0]
        if isinstance(first, FileRegion):
            sent = first.send_to(self._socket.fileno(), TURN_BYTES_MAX)
            if not first.size:
                parts.popleft()
            return sent
        buffers = cast("list[Buffer]", list(islice(takewhile(_is_buffer, parts), _BUFFERS_MAX)))
        sent = self._socket.sendmsg(buffers, (), _MSG_MORE if len(buffers) < len(parts) else 0)
        _drop(parts, sent)
        return sent

    def _wait_for_transport(self) -> None:
        """Make the transport call `pause_writing` now, and `resume_writing` when its buffer is
        empty.
        """
        self._waited = True
        self._transport.set_write_buffer_limits(high=self._least_bytes)


def has_region(parts: Sequence[Part]) -> bool:
    for part in parts:  # noqa: SIM110 - a generator for `any` would take twice as long
        if isinstance(part, FileRegion):
            return True
    return False


def _is_buffer(part: Part) -> bool:
    return not isinstance(part, FileRegion)


def _next_piece(parts: deque[Part]) -> Buffer:
    """Take a piece off the front, into memory."""
    first = parts[0]
    if isinstance(first, FileRegion):
        piece: Buffer = first.read(PIECE_BYTES)
        if not first.size:
            parts.popleft()
    else:
        piece = memoryview(first)[:PIECE_BYTES]
        _drop(parts, len(piece))
    return piece


def _drop(parts: deque[Part], sent: int) -> None:
    """Take `sent` bytes of buffers off the front."""
    while sent:
        first = parts[0]
        assert not isinstance(first, FileRegion)
        if sent < len(first):
            parts[0] = memoryview(first)[sent:]
            return
        sent -= len(first)
        parts.popleft()
