"""A broker under test as a child process: ports, start, ready, stop, kill, restart, readings.

`BrokerProcess` holds what Penstock and Apache Kafka have in common; `node.py` and `reference.py`
say how each is started and when it is ready. The object belongs to one thread; its log file is
shared by every start of the same data directory, so that a failure after a restart shows the whole
story.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
LOG_NAME = "node.log"
LOG_TAIL_BYTES = 6_000

# Below the range from which the kernel takes outgoing ports: while a killed node is down, no
# client's own connection can take the port that the node will want back. For the same reason the
# workers of one test run share the range out, and no worker gives a port twice: a whole run takes
# less than a thousand of them, most of them in whichever worker has no Spark.
PORTS = range(16_000, 32_768)
ROW_PORTS_MAX = 8
ROWS = range(10_000, PORTS.start, ROW_PORTS_MAX)
_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that was not given before."""
    return _free(PORTS, 1)


def free_ports(count: int) -> int:
    """The first of so many such ports in a row."""
    assert count <= ROW_PORTS_MAX
    return _free(ROWS, count)


def _free(firsts: range, count: int) -> int:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ours = set(firsts[worker::workers]) - _given
    for first in random.sample(sorted(ours), len(ours)):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probe = stack.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
            _given.add(first)
            return first
    raise RuntimeError(f"no free port between {firsts.start} and {firsts.stop - 1}")


def tail(path: Path) -> str:
    """The end of a log file; nothing if there is none."""
    if not path.exists():
        return ""
    return path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


class BrokerProcess:
    """One broker on 127.0.0.1; subclasses give `command` and `is_ready`."""

    KIND = "broker"
    CLEAN_EXIT_CODES: tuple[int, ...] = (0,)

    def __init__(self, root: Path, settings: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.data_dir = root / "data"
        self.log_path = root / LOG_NAME
        self.out_path = root / "node.out"
        self.settings = dict(settings or {})
        self.host = "127.0.0.1"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        root.mkdir(parents=True, exist_ok=True)

    # What the two kinds differ in

    def command(self) -> list[str]:
        """The command line that starts the broker."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether this start of the broker serves requests."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The environment of the process."""
        return dict(os.environ)

    # Life

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.KIND} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Starts the process and waits until it serves."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Starts the process and does not wait."""
        assert not self.running, f"{self.KIND} runs already"
        with self.log_path.open("ab") as log, self.out_path.open("wb") as out:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=self.environment(),
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self.is_ready():
            if not self.running:
                raise AssertionError(f"{self.KIND} died while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.KIND} is not ready in time:\n{self.log_tail()}")
            time.sleep(0.02)

    def terminate(self) -> None:
        """SIGTERM, without waiting for the end."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM; the process has to end by itself, with the exit code of a clean stop."""
        self.terminate()
        self.wait_stopped()

    def wait_stopped(self) -> None:
        """Waits for the end of a process that was told to stop."""
        assert self._process is not None
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.KIND} did not stop within {STOP_SECONDS_MAX:.0f} s:\n{self.log_tail()}"
            ) from None
        assert code in self.CLEAN_EXIT_CODES, f"{self.KIND} ended with {code}:\n{self.log_tail()}"

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to finish anything."""
        if self._process is not None and self.running:
            self._process.kill()
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)

    def pause(self) -> None:
        """SIGSTOP: the process does nothing, but the kernel still answers for its sockets."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """A clean stop and a start on the same directory and port."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    # Readings

    def out_text(self) -> str:
        """What this start of the broker has written to stdout."""
        return self.out_path.read_text(errors="replace") if self.out_path.exists() else ""

    def log_tail(self) -> str:
        """The end of what all starts have written to stderr."""
        return tail(self.log_path)

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """User and system time the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        """How many descriptors the process holds."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """The directory of one partition's log."""
        return self.data_dir / f"{topic}-{partition}"
