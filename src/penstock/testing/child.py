"""The process of a node that a test has started: `penstock serve` that ends with the test.

Its standard input is a pipe whose other end the test's process holds, and nobody writes to. When
that process is gone, however it went, the pipe is at its end; where a child of it still holds the
pipe, this process has got another parent. Either ends the node at once, and removes its folder if
that is a temporary one. A thread watches; the node has the main thread to itself.

Arguments: the number of the test's process, the folder to remove or nothing, and those of `serve`.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import threading
from contextlib import suppress

from penstock.cli import main as command_line

PARENT_CHECK_S = 1.0
_STDIN = 0


def main() -> int:
    parent, folder, *arguments = sys.argv[1:]
    watcher = threading.Thread(target=_end_with, args=(int(parent), folder), daemon=True)
    watcher.start()
    sys.argv = ["penstock", "serve", *arguments]
    return command_line()


def _end_with(parent: int, folder: str) -> None:
    poll = select.poll()
    poll.register(_STDIN, select.POLLIN)
    while os.getppid() == parent and not poll.poll(PARENT_CHECK_S * 1000):
        """Nothing has happened: the test goes on."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # other nodes of a cluster have theirs there
            os.rmdir(os.path.dirname(folder))
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
