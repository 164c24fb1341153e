"""Writes to the end of a segment's file: one system call for many buffers.

Knows no offsets and no indexes; `LogSegment` says where its data ends and cuts off what a failed
write has left. `write_buffers` and `SegmentWrite.run` may run in any thread.
"""

from __future__ import annotations

import logging
import os

from penstock.log.files import write_all
from penstock.log.limits import IOV_MAX, JOIN_BYTES_PER_BUFFER_MAX
from penstock.log.sealing import Seal

logger = logging.getLogger("penstock.log")


class SegmentWrite:
    """Bytes that are being written to the end of a segment, and not read until all are there."""

    __slots__ = ("buffers", "error", "fd", "position", "seal", "total")

    def __init__(
        self,
        fd: int,
        buffers: list[bytes | memoryview],
        total: int,
        position: int,
        seal: Seal | None,
    ) -> None:
        """With a `seal` the batches are encrypted by it; `total` is their size then."""
        self.fd = fd
        self.buffers = buffers
        self.total = total
        self.position = position
        self.seal = seal
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            seal = self.seal
            stored = self.buffers if seal is None else seal.sealed(self.buffers)
            write_buffers(self.fd, stored, self.total, self.position)
        except OSError as refusal:
            self.error = refusal
        except Exception as bug:
            logger.exception("a write failed unexpectedly")
            self.error = OSError(str(bug))  # reported to the caller that waits for the write


def write_buffers(
    fd: int, buffers: list[bytes | memoryview], total: int, position: int
) -> bytes | None:
    """Write all of them; small ones are joined first, and what was joined is returned."""
    if total > JOIN_BYTES_PER_BUFFER_MAX * len(buffers):
        _write_vector(fd, buffers, total, position)
        return None
    data = b"".join(buffers)
    if os.pwrite(fd, data, position) != total:
        write_all(fd, data, position)
    return data


def _write_vector(fd: int, buffers: list[bytes | memoryview], total: int, position: int) -> None:
    """`pwritev` of everything; the tail after a short write goes through `write_all`."""
    end = position + total
    for i in range(0, len(buffers), IOV_MAX):
        part = buffers[i : i + IOV_MAX]
        size = sum(map(len, part)) if len(buffers) > IOV_MAX else total
        done = os.pwritev(fd, part, position)
        if done < size:
            write_all(fd, b"".join(part)[done:], position + done)
        position += size
    if position != end:
        raise OSError(f"{end - position} bytes of a write are missing")
