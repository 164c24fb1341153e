"""Large frames of a connection, received without copies.

Duty: act as the protocol of a connection while its frames are large, so that each is received into
a buffer of its own. Otherwise it would arrive in pieces that are copied, joined and cut apart
again. The size of the next frame is not known before its length has arrived: its first buffer is as
large as the frame before it, since frames of a connection are usually of similar size.

Invariants:
* A frame is handed over whole, in order, and alone in its buffer.
* Nothing is read beyond the end of a frame once its length is known. Bytes that were read beyond it
  before are moved to the buffer of the next frame.
* The first frame that is small, or no frame, goes back to the connection with all that follows it;
  so does one that fills less than half of the buffer that it came in.

Limits: memory for `GROWTH` times what has arrived, never for what is only announced; for the
beginning of a frame `BEGINNING_BYTES_MAX`. A connection that waits for a frame holds no memory: the
loop tries to read before it knows that there is nothing, and all its connections share one spare
buffer for that read. A connection that receives something keeps the buffer. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
import threading
from typing import Protocol

LARGE_FRAME_BYTES = 64 * 1024
"""An incomplete frame of which so much has arrived is received here, and so are the following
frames while they are this large.
"""
GROWTH = 16
BEGINNING_BYTES_MAX = 2 * 1024 * 1024
"""Fits requests of 1 MiB, the default limit of clients, with their headers."""

_LENGTH = struct.Struct(">i")
_LENGTH_SIZE = 4
_NOTHING = memoryview(b"")

# `bytearray(size)` zeroes memory that is overwritten at once: a tenth of the time of publishing in
# large batches. Without initial bytes this leaves the memory as it is.
_new_bytearray = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
)


class _Spare(threading.local):
    """The buffer that the loop of this thread offers for the beginning of a frame."""

    buffer: memoryview = _NOTHING

    def offer(self, size: int) -> memoryview:
        if len(self.buffer) != size:
            self.buffer = _new_buffer(size)
        return self.buffer

    def take(self) -> memoryview:
        """Take the buffer, into which something was received; the caller owns it now."""
        taken, self.buffer = self.buffer, _NOTHING
        return taken


_spare = _Spare()


class FrameOwner(Protocol):
    """A connection that hands over to `LargeFrames` and gets its frames from there."""

    def touch(self) -> None: ...
    def large_frame_begun(self, size: int) -> None:
        """The beginning of a frame has arrived, which will have `size` bytes with its length."""

    def large_frame_arrived(self, frame: memoryview) -> None:
        """The whole of a frame, without its length."""

    def large_frames_ended(self, rest: bytes) -> None:
        """`rest` is no large frame: receive it, and what follows, in the ordinary way."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class LargeFrames(asyncio.BufferedProtocol):
    __slots__ = ("_buffer", "_frame_bytes_max", "_have", "_need", "_next", "_owner")

    def __init__(
        self, owner: FrameOwner, beginning: bytes, need: int, frame_bytes_max: int
    ) -> None:
        """`need` bytes are in the first frame, length included; `beginning` is what is there."""
        self._owner = owner
        self._frame_bytes_max = frame_bytes_max
        self._need = need  # 0 until the length has arrived
        self._next = 0  # how much the buffer of the next frame's beginning holds
        self._buffer = memoryview(beginning)
        self._have = len(beginning)
        self._grow()

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._have:
            return _spare.offer(self._next)
        return self._buffer[self._have : self._need or None]

    def buffer_updated(self, nbytes: int) -> None:
        if not self._have:
            self._buffer = _spare.take()
        self._have += nbytes
        self._owner.touch()
        while self._need or self._have >= _LENGTH_SIZE:
            if not self._need and not self._begin():
                return
            if self._have < self._need:
                if self._have == len(self._buffer):
                    self._grow()
                return
            self._hand_over()

    def _begin(self) -> bool:
        """Read the length that has arrived; whether a large frame follows."""
        (size,) = _LENGTH.unpack_from(self._buffer)
        is_large = LARGE_FRAME_BYTES <= size <= self._frame_bytes_max
        if not is_large or 2 * (_LENGTH_SIZE + size) < len(self._buffer):
            self._owner.large_frames_ended(bytes(self._buffer[: self._have]))
            return False
        self._need = _LENGTH_SIZE + size
        if self._have < self._need:
            self._owner.large_frame_begun(self._need)
        return True

    def _grow(self) -> None:
        """Make room for more of the frame than the buffer holds."""
        grown = _new_buffer(min(self._need, GROWTH * self._have))
        grown[: self._have] = self._buffer[: self._have]
        self._buffer = grown

    def _hand_over(self) -> None:
        need, buffer = self._need, self._buffer
        rest = buffer[need : self._have]
        self._need, self._have, self._buffer = 0, len(rest), _NOTHING
        self._next = min(need, BEGINNING_BYTES_MAX)
        if rest:
            self._buffer = _new_buffer(max(self._next, len(rest)))
            self._buffer[: self._have] = rest
        self._owner.large_frame_arrived(buffer[_LENGTH_SIZE:need])

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)


def _new_buffer(size: int) -> memoryview:
    return memoryview(_new_bytearray(None, size))
