"""Large frames of a connection, received where they stay.

Duty: stand in for a connection as long as its frames are large, so that each is received into a
buffer of its own. In the ordinary way it would come in pieces that are copied one by one, joined,
and cut apart again. How large the next frame is nobody knows before its length has arrived: the
buffer for its beginning is as large as the frame before it, for frames of a stream are much alike.

Invariants:
* A frame is handed over whole, in order, and alone in its buffer.
* Nothing is read behind the end of a frame once its length is known. What was read before that is
  moved to the buffer of the next.
* The first frame that is small, or no frame, goes back to the connection with all that follows it;
  so does one that fills less than half of the buffer that it came in.

Limits: memory for `GROWTH` times what has really arrived, never for what is only announced; of
that, for the beginning of a frame, `BEGINNING_BYTES_MAX`. None between frames: a loop looks whether
there is more behind a frame before it knows that there is nothing, and all of its connections have
one spare buffer for that, which belongs to whom something was received into it. Owned by the event
loop's thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
import threading
from typing import Protocol

LARGE_FRAME_BYTES = 64 * 1024
"""A frame of which so much has arrived, and which is not whole, is received here; frames that
follow it are while they are so large."""
GROWTH = 16
BEGINNING_BYTES_MAX = 2 * 1024 * 1024
"""Requests of 1 MiB, where clients stop by default, and their headers fit in."""

_LENGTH = struct.Struct(">i")
_LENGTH_SIZE = 4
_NOTHING = memoryview(b"")

# `bytearray(size)` fills with zeros what is overwritten at once: a tenth of the time that it takes
# to publish in large batches. With no bytes given, this leaves the memory as it is.
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
        """Something was received into it: it is the caller's from now on."""
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
        """Look at the length that has arrived; whether a large frame follows."""
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

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)


def _new_buffer(size: int) -> memoryview:
    return memoryview(_new_bytearray(None, size))
