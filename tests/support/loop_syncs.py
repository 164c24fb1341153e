"""Notes every fsync in the thread of an event loop: everybody waits for the disk then."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

FRAMES_SHOWN = 8


@contextmanager
def syncs_in_this_thread() -> Iterator[list[str]]:
    """The stacks of the calls of fsync and fdatasync that this thread makes inside the block."""
    own, found = threading.get_ident(), list[str]()

    def noting(call: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            if threading.get_ident() == own:
                found.append("".join(traceback.format_stack()[-FRAMES_SHOWN:-1]))
            call(fd)

        return sync

    with (
        patch.object(os, "fsync", noting(os.fsync)),
        patch.object(os, "fdatasync", noting(os.fdatasync)),
    ):
        yield found
