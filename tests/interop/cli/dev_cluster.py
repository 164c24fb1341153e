"""A `penstock dev` that runs as a child process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.node.pid_file import running_pid
from support.waiting import eventually

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK


class Dev:
    """A running `penstock dev`."""

    def __init__(self, root: Path, *args: str) -> None:
        self.root = root
        self.config = ""
        self.out_path, self.err_path = root / "dev.out", root / "dev.err"
        root.mkdir(exist_ok=True)
        command = [*PENSTOCK, "dev", "--data-dir", str(root), *args]
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def out(self) -> str:
        return self.out_path.read_text()

    def err(self) -> str:
        return self.err_path.read_text()

    def folder(self, number: int) -> Path:
        return self.root / f"node-{number}"

    def pid(self, number: int) -> int | None:
        return running_pid(str(self.folder(number)))

    def wait_ready(self) -> list[str]:
        """The addresses of the one line on stdout; then `config` has the file that it names."""
        eventually(lambda: "\n" in self.out() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.err()
        assert self.out().startswith("ready: bootstrap=")
        assert self.out().count("\n") == 1
        addresses, _, self.config = self.out().strip().partition(" config=")
        return addresses.removeprefix("ready: bootstrap=").split(",")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(COMMAND_SECONDS_MAX)


@contextmanager
def running(root: Path, *args: str) -> Iterator[Dev]:
    dev = Dev(root, *args)
    try:
        yield dev
    finally:
        dev.process.kill()
        dev.process.wait()
        for folder in root.glob("node-*"):  # the kernel stops them with their parent
            eventually(lambda folder=folder: running_pid(str(folder)) is None)
