"""A node for tests, as a process of its own, with its data in a temporary folder.

Duty: start, stop, kill, pause and start again on the same port and data; topics; the log when
something goes wrong. `Node` is a context manager; leaving it kills the process, since its data goes
with it (in a folder that was given, it is stopped cleanly).

Invariants: no process outlives the one that started it, be it ended by SIGKILL: `child.py` watches
a pipe. A paused node cannot watch, so a guard does it meanwhile. Nodes are process groups of their
own: Ctrl-C on a terminal reaches the tests and not the nodes.

Limits: `READY_S_MAX` until a node serves, `STOP_S_MAX` until it has stopped. An object belongs to
one thread; nothing here needs pytest.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self, TypeAlias

HOST: Final = "127.0.0.1"
PORTS: Final = range(16_000, 32_768)
"""Below those that the system takes for clients' connections: none of them can get the port of a
node that is down for a while.
"""
PORTS_TRIED: Final = 1_000
PORT_TRIES: Final = 5
"""Between the choice of a port and the start somebody else may take it."""
READY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 30.0
TOPIC_S_MAX: Final = 30.0
LOG_TAIL_BYTES: Final = 6_000
FOLDER_PREFIX: Final = "penstock-test-"
QUICK: Final = {"group.initial.rebalance.delay.ms": "0"}
"""What differs from a node's defaults: the first members of a group need not wait for others."""

Value: TypeAlias = str | int | float | bool

_READY = re.compile(r"ready: kafka=(\S+)(?: http=(\S+))? build=")
TAKEN: Final = "Address already in use"
"""What the log of a node says whose port somebody else has."""
_numbers = itertools.count(1)


class NodeFailed(Exception):
    """A node did not do what it was told; the message ends with the end of its log."""


class Started(ABC):
    """A context manager for what runs inside the block."""

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


class Node(Started):
    """One node; `with Node() as node:` has it run inside the block."""

    def __init__(
        self,
        settings: Mapping[str, Value] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Nothing is started yet. `settings` are a broker's, by Kafka's names; `folder` is where
        data and log are kept, a temporary one that is removed if it is not given.
        """
        self._settings = {**QUICK, **texts(settings or {})}
        self._folder = None if folder is None else Path(folder)
        self._is_temporary = folder is None
        self._port: int | None = None
        self._process = _Process()

    def _arguments(self) -> list[str]:
        """What follows `serve`."""
        assert self._port is not None
        listen = ["--listen", f"{HOST}:{self._port}", "--http", f"{HOST}:0"]
        sets = [part for pair in self._settings.items() for part in ("--set", "=".join(pair))]
        return ["--data-dir", str(self.folder / "data"), *listen, *sets]

    # -- what it is ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients; the same after each start."""
        return f"{HOST}:{self.port}"

    @property
    def http(self) -> str:
        """The URL below which are `/metrics`, `/healthz` and `/readyz`; another after each start,
        and empty where `penstock.http.listen` is.
        """
        return self._process.http

    @property
    def folder(self) -> Path:
        """Where its data and its log lie."""
        if self._folder is None:
            raise NodeFailed("the node was not started: use it as `with node() as it:`")
        return self._folder

    @property
    def log_path(self) -> Path:
        """What all its starts have written to stderr."""
        return self.folder / "node.log"

    @property
    def pid(self) -> int | None:
        """The number of its process while that runs."""
        return self._process.pid

    @property
    def running(self) -> bool:
        return self.pid is not None

    def log_tail(self) -> str:
        """The end of its log."""
        with suppress(OSError):
            return self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

    @property
    def port(self) -> int:
        if self._port is None:
            raise NodeFailed("the node was not started: use it as `with node() as it:`")
        return self._port

    # -- its life ------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the process, for the first time or again, and waits until it serves."""
        if self.running:
            return self
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX), "node-1")
        tries = 1 if self._port is not None else PORT_TRIES
        for left in reversed(range(tries)):
            if self._port is None:
                self._port = free_ports(1)
            try:
                self.launch()
                self.wait_ready()
                break
            except NodeFailed as e:
                if left == 0 or TAKEN not in str(e):
                    self._port = None if tries > 1 else self._port
                    raise
                self._port = None
        return self

    def launch(self) -> None:
        """Starts the process and does not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove = str(self.folder) if self._is_temporary else ""
        self._process.launch(remove, self._arguments(), self.log_path)

    def wait_ready(self) -> None:
        """Waits until the process that was launched serves."""
        why = self._process.wait_ready(time.monotonic() + READY_S_MAX)
        if why:
            self.kill()
            raise self._failed(why)

    def stop(self) -> None:
        """Stops it cleanly, as SIGTERM does; `start` brings it back."""
        code = self._process.end(signal.SIGTERM, STOP_S_MAX)
        if code not in (0, None):
            self.kill()
            raise self._failed("the node did not stop cleanly")

    def kill(self) -> None:
        """Ends it by SIGKILL, as a crash does; `start` brings it back with the same data."""
        self._process.end(signal.SIGKILL, STOP_S_MAX)

    def restart(self) -> None:
        """A clean stop and a start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """The process does nothing until `resume`, as on a machine that hangs."""
        self._process.pause(str(self.folder) if self._is_temporary else "")

    def resume(self) -> None:
        self._process.resume()

    def close(self) -> None:
        """Ends it for good, and removes the folder if it is a temporary one."""
        if self._is_temporary:
            self.kill()
        else:
            self.stop()
        if self._is_temporary and self._folder is not None:
            shutil.rmtree(self._folder.parent, ignore_errors=True)

    def _failed(self, why: str) -> NodeFailed:
        return NodeFailed(f"{why}; the end of its log:\n{self.log_tail()}")

    # -- topics --------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        config: Mapping[str, Value] | None = None,
    ) -> str:
        """Makes a topic, of a name that was not used before if none is given; returns the name."""
        return create_topic([self.port], name, partitions, None, config)


def create_topic(
    ports: list[int],
    name: str | None,
    partitions: int,
    replication_factor: int | None,
    config: Mapping[str, Value] | None,
) -> str:
    """Makes a topic and waits until the nodes at `ports` know the leaders of its partitions."""
    from penstock.kafka.brokers import Brokers
    from penstock.kafka.topics import BROKER_DEFAULT, create_topic, wait_for_leaders

    name = name or f"topic-{os.getpid()}-{next(_numbers)}"
    addresses = [(HOST, port) for port in ports]
    with Brokers(addresses, TOPIC_S_MAX) as brokers:
        replicas = replication_factor or BROKER_DEFAULT
        create_topic(brokers, name, partitions, replicas, texts(config or {}), may_exist=False)
        for address in addresses:
            wait_for_leaders(brokers, address, name)
    return name


def texts(settings: Mapping[str, Value]) -> dict[str, str]:
    """Settings as texts, as Kafka writes them."""
    from penstock.config.table import value_text

    return {name: value_text(value) or "" for name, value in settings.items()}


def free_ports(count: int) -> int:
    """The first of so many ports in a row on which nobody listens."""
    for _ in range(PORTS_TRIED):
        first = random.randrange(PORTS.start, PORTS.stop - count)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                probe = stack.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
            return first
    raise NodeFailed(f"no free port of {HOST} from {PORTS.start} to {PORTS.stop - 1} was found")


_GUARD: Final = 'read nothing; kill -9 "$0"; test -z "$1" || { rm -rf "$1"; rmdir "${1%/*}"; }'
"""For the shell: when the pipe is at its end, ends the process and removes the folder."""


class _Process:
    """The process of a node, if it has one."""

    def __init__(self) -> None:
        self.http = ""
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def launch(self, remove: str, arguments: list[str], log_path: Path) -> None:
        self._forget()
        command = [sys.executable, "-P", "-m", "penstock.testing.child", str(os.getpid()), remove]
        with log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )

    def wait_ready(self, deadline: float) -> str:
        """Waits for the line that says so; returns what went wrong, if anything did."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        out = b""
        while b"\n" not in out:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                return f"the node was not ready within {READY_S_MAX:.0f} s"
            piece = os.read(child.stdout.fileno(), 4096)
            if not piece:
                return f"the node ended with exit code {child.wait()} while it started"
            out += piece
        found = _READY.match(out.decode(errors="replace"))
        if found is None:
            return f"the node said {out!r} where it should have said that it is ready"
        address = found[2] or ""
        self.http = address if not address or "://" in address else f"http://{address}"
        return ""

    def pause(self, remove: str) -> None:
        if self._child is None or self._guard is not None:
            return
        guard = ["/bin/sh", "-c", _GUARD, str(self._child.pid), remove]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, process_group=0)
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard = None

    def end(self, number: int, within_s: float) -> int | None:
        """Sends a signal that ends it; the exit code, or None if there was nothing to end. One that
        does not end in time is told by the code of SIGKILL.
        """
        child = self._child
        if child is None:
            return None
        child.send_signal(number)
        self.resume()
        try:
            code = child.wait(within_s)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        self._forget()
        return code

    def _forget(self) -> None:
        self._dismiss_guard()
        if self._child is None:
            return
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child = None
