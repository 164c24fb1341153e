"""Draws docs/img/first-message.svg: a real node and real commands, as a terminal shows them.

Run as `python tools/picture.py` (`make picture`). Starts a node on a free port with temporary
data, runs the commands below in a pseudo-terminal, and renders what they print with rich.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
TARGET = Path(__file__).resolve().parents[1] / "docs" / "img" / "first-message.svg"
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
    return "\n".join(line for line in lines if "━" not in line or "messages" in line)


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as data:
        node = subprocess.Popen(
            [
                *PENSTOCK,
                "serve",
                "--data-dir",
                f"{data}/penstock-data",
                "--listen",
                "127.0.0.1:0",
                "--http",
                "",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert node.stdout is not None
            ready = node.stdout.readline().strip()
            match = re.search(r"kafka=(\S+)", ready)
            assert match is not None, ready
            bootstrap = match.group(1)
            console.print("[bold green]$[/] penstock serve &")
            console.print(
                Text("ready: kafka=127.0.0.1:9092 http=127.0.0.1:8082 data=./penstock-data")
            )
            for shown, arguments, typed in COMMANDS:
                console.print(Text.assemble(("$ ", "bold green"), shown))
                console.print(Text.from_ansi(in_terminal(arguments, typed, bootstrap).rstrip()))
        finally:
            node.terminate()
            node.wait()
    TARGET.parent.mkdir(exist_ok=True)
    svg = console.export_svg(title="Penstock")
    # The reader's own monospaced font will do: a picture in a README loads nothing from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    TARGET.write_text(svg, encoding="utf-8")
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
