"""Redis as Debian packages it, with its append-only file: everything in memory, a log on disk.

What it needs beside its process: children that rewrite the file when it has doubled, as is its
default. Their processor time is counted, also while they run; their memory is the parent's until
it is written to, so it is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from penstock.cli.bench.broker import process_cpu_clock
from penstock.cli.errors import CliError

from .redis_wire import RedisWire, ask
from .server import Server
from .wire import PeerError

PROGRAM = "redis-server"
ANSWER_S_MAX = 2.0
VERSION_S_MAX = 30.0


class RedisServer(Server):
    """Redis's own defaults but for what makes it a durable log; `command` says why."""

    name = "Redis Streams"
    in_memory: ClassVar[bool] = True

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        super().__init__(folder, fsync=fsync)
        self._wire = RedisWire(self.host, self.port)

    @classmethod
    def missing(cls) -> str | None:
        return None if shutil.which(PROGRAM) else "Redis is not installed (Debian: redis-server)"

    @classmethod
    def version(cls) -> str:
        """It says `Redis server v=7.0.15 sha=...`."""
        said = subprocess.run(
            [PROGRAM, "--version"],
            capture_output=True,
            check=True,
            text=True,
            timeout=VERSION_S_MAX,
        )
        return next(
            word.removeprefix("v=") for word in said.stdout.split() if word.startswith("v=")
        )

    @property
    def durability(self) -> str:
        if self.fsync:
            return "append-only file, fsync before the answer"
        return "append-only file, fsync every second"

    def command(self) -> list[str]:
        """`appendonly`: off by default, and then what was acknowledged may never reach the disk;
        `appendfsync` is its default for such a file unless fsync is asked for. `save`: snapshots
        would write every message a second time, and with the file they protect nothing more.
        """
        return [
            *(PROGRAM, "--bind", self.host, "--port", str(self.port)),
            *("--dir", str(self.folder.resolve())),
            *("--appendonly", "yes", "--appendfsync", "always" if self.fsync else "everysec"),
            *("--save", ""),
        ]

    def answers(self) -> bool:
        """While it still reads its file, it refuses."""
        try:
            with self._wire.session(ANSWER_S_MAX) as sock:
                return ask(sock, "PING") == "PONG"
        except PeerError:
            return False

    def wire(self) -> RedisWire:
        return self._wire

    def cpu_seconds(self) -> float:
        while True:
            ended = self._ended_children_s()
            now = super().cpu_seconds() + self._children_s()
            if self._ended_children_s() == ended:  # else one may be missing, or counted twice
                return now + ended

    def _ended_children_s(self) -> float:
        stat = Path(f"/proc/{self.pids()[0]}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[13:15]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _children_s(self) -> float:
        pid, total = self.pids()[0], 0.0
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(CliError):  # it has just ended
                total += process_cpu_clock(int(child))()
        return total
