"""Mappings of segment files that are counted for as long as somebody has a view of them.

Not compiled: mypyc cannot derive from what is written in C.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable


class Pages(mmap.mmap):
    """Pages of a file, to be read by the kernel alone."""

    on_gone: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.on_gone is not None:
            self.on_gone()


def mapped(fd: int, position: int, size: int, on_gone: Callable[[], None]) -> memoryview:
    """A view of `size` bytes at `position`; `on_gone` is called when nobody has it any more.

    OSError or ValueError when they cannot be mapped.
    """
    before = position % mmap.ALLOCATIONGRANULARITY
    pages = Pages(fd, before + size, mmap.MAP_SHARED, mmap.PROT_READ, offset=position - before)
    pages.on_gone = on_gone
    return memoryview(pages)[before:]
