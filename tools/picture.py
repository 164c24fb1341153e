"""Draws the pictures of the README: real nodes and real commands, as a terminal shows them.

Run as `python tools/picture.py` (`make picture`). Starts a node, then a cluster on the ports from
9092 on, with temporary data, runs commands in a pseudo-terminal, and renders what they print with
rich.
"""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
FOLDER = Path(__file__).resolve().parents[1] / "docs" / "img"
PENSTOCK = [sys.executable, "-m", "penstock.cli"]

COMMANDS = [
    ("penstock topic create orders -p 3", ["topic", "create", "orders", "-p", "3"], ""),
    (
        "echo 'alice:one espresso' | penstock topic produce orders --input key-value",
        ["topic", "produce", "orders", "--input", "key-value"],
        "alice:one espresso\n",
    ),
    (
        "penstock topic consume orders --key --timestamp",
        ["topic", "consume", "orders", "--key", "--timestamp"],
        "",
    ),
    ("penstock topic describe orders", ["topic", "describe", "orders"], ""),
]


def in_terminal(arguments: list[str], typed: str, bootstrap: str) -> str:
    """What a command prints when a person watches."""
    leader, follower = pty.openpty()
    env = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "COLUMNS": str(WIDTH),
        "TERM": "xterm-256color",
    }
    process = subprocess.Popen(
        [*PENSTOCK, *arguments], stdin=subprocess.PIPE, stdout=follower, stderr=follower, env=env
    )
    os.close(follower)
    process.communicate(typed.encode())
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the terminal is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    lines = b"".join(chunks).decode().replace("\r\n", "\n").splitlines()
    # A terminal erases a progress bar that has done its work; plain text would keep it.
    kept = [line for line in lines if "━" not in line or "messages" in line]
    return "\n".join(dropwhile(lambda line: not Text.from_ansi(line).plain.strip(), kept))


class Picture:
    """A terminal that remembers what was shown on it."""

    def __init__(self) -> None:
        self._console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)

    def typed(self, command: str) -> None:
        self._console.print(Text.assemble(("$ ", "bold green"), command))

    def printed(self, text: str) -> None:
        self._console.print(Text.from_ansi(text.rstrip()))

    def save(self, name: str) -> None:
        svg = self._console.export_svg(title="Penstock")
        # The reader's own monospaced font will do: a picture loads nothing from elsewhere.
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
        svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / name).write_text(svg, encoding="utf-8")
        print(f"wrote {FOLDER / name}")


@contextmanager
def started(arguments: list[str]) -> Iterator[str]:
    """A process of `penstock` that runs, and the line with which it says that it is ready."""
    process = subprocess.Popen(
        [*PENSTOCK, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        ready = next(line for line in process.stdout if line.startswith("ready: "))
        yield ready.strip()
    finally:
        process.terminate()
        process.wait()


def first_message(data: str) -> None:
    picture = Picture()
    where = ["--data-dir", f"{data}/penstock-data", "--listen", "127.0.0.1:0", "--http", ""]
    with started(["serve", *where]) as ready:
        match = re.search(r"kafka=(\S+)", ready)
        assert match is not None, ready
        picture.typed("penstock serve &")
        picture.printed("ready: kafka=127.0.0.1:9092 http=127.0.0.1:8082 data=./penstock-data")
        for shown, arguments, typed in COMMANDS:
            picture.typed(shown)
            picture.printed(in_terminal(arguments, typed, match.group(1)))
    picture.save("first-message.svg")


def fail_over(data: str) -> None:
    picture = Picture()
    folder = f"{data}/cluster"
    with started(["dev", "--nodes", "3", "--data-dir", folder]) as ready:
        bootstrap = ready.partition("bootstrap=")[2]
        picture.typed("penstock dev --nodes 3 --data-dir cluster &")
        picture.printed(ready)
        picture.typed("penstock topic create orders -p 6")
        picture.printed(in_terminal(["topic", "create", "orders", "-p", "6"], "", bootstrap))
        picture.typed("kill -9 $(cat cluster/node-1/penstock.pid); sleep 1")
        pid = Path(folder, "node-1", "penstock.pid").read_text(encoding="utf-8")
        os.kill(int(pid), signal.SIGKILL)
        time.sleep(1.0)
        picture.typed("seq 1000 | penstock topic produce orders")
        numbers = "".join(f"{n}\n" for n in range(1000))
        picture.printed(in_terminal(["topic", "produce", "orders"], numbers, bootstrap))
        picture.typed("penstock cluster status")
        picture.printed(in_terminal(["cluster", "status"], "", bootstrap))
    picture.save("fail-over.svg")


def main() -> None:
    with tempfile.TemporaryDirectory() as data:
        first_message(data)
        fail_over(data)


if __name__ == "__main__":
    main()
