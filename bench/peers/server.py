"""A server under measurement: its process, folder, processor time and memory.

The same for each: it lives in a fresh folder, listens on 127.0.0.1, is started by `start`, which
returns when the server has answered a request of its own protocol, and is stopped by `stop`, which
leaves no process behind. Where its settings must differ from its own defaults, the class says why.

Processor time and memory are those of all processes that the server needs, read from /proc.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from tests.support.process import free_port

from penstock.cli.bench.broker import process_cpu_clock, resident_bytes
from penstock.wire.compression import Compression

from .queue_wire import Asking, QueueWire
from .wire import PeerError, Wire

READY_S_MAX = 90.0
STOP_S_MAX = 30.0
POLL_S = 0.005


class Server(ABC):
    """One server process, or one that leads others."""

    name: ClassVar[str]
    """How tables name it."""
    replication: ClassVar[str] = "1 copy"
    fsync_before_ack: ClassVar[bool] = True
    """Whether it can be told to have messages on disk before it acknowledges them."""
    in_memory: ClassVar[bool] = False
    """Whether all that it holds is in memory, so that nothing is ever read from disk."""
    reads_again: ClassVar[bool] = True
    """Whether a group may read from the start what it has read before."""
    by_age: ClassVar[bool] = False
    """Whether it is compared for messages that were written some time ago, too."""
    compresses: ClassVar[bool] = False
    """Whether its producers send batches that they have compressed."""
    warm_up_s: ClassVar[float] = 3.0
    """How long it is loaded before it is measured."""
    acks: ClassVar[tuple[str, ...]] = ("1",)
    """The levels of acknowledgement that its protocol tells apart."""
    shares: ClassVar[bool] = False
    """Whether it has Kafka's share groups."""
    queues: ClassVar[bool] = False
    """Whether it is compared as a queue of single messages; `new_queue_wire` is there then."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self.folder = folder
        self.fsync = fsync
        self.compression = Compression.NONE
        """Of what is published next, where its producers compress."""
        self.warm_for: set[Asking] = set()
        """How it was loaded as a queue before."""
        self.host = "127.0.0.1"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._queue_wire: QueueWire | None = None

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Why it cannot run here, or None."""

    @classmethod
    @abstractmethod
    def version(cls) -> str: ...

    @property
    @abstractmethod
    def durability(self) -> str:
        """In a few words: when a message that was acknowledged is on disk."""

    @abstractmethod
    def command(self) -> list[str]:
        """What is started; files that it reads are written here."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers a request of its own protocol now; quick either way."""

    @abstractmethod
    def wire(self) -> Wire: ...

    def queue_wire(self) -> QueueWire:
        """One for all cases: it knows what it has made."""
        if self._queue_wire is None:
            self._queue_wire = self.new_queue_wire()
        return self._queue_wire

    def new_queue_wire(self) -> QueueWire:
        raise PeerError(f"{self.name} is not compared as a queue")

    @property
    def load_port(self) -> int:
        """Where the load goes; topics are made at `port`."""
        return self.port

    def secured(self, sock: socket.socket) -> socket.socket:
        """What the load sends over, once `sock` is connected."""
        return sock

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self) -> float:
        """Starts it; the seconds until it answered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command, environment = self.command(), self.environment()
        with (self.folder / "server.log").open("ab") as log:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        while not self.answers():
            if self._process.poll() is not None or time.perf_counter() - began > READY_S_MAX:
                self.stop()
                raise PeerError(f"{self.name} does not answer: look at {self.folder}/server.log")
            time.sleep(POLL_S)
        return time.perf_counter() - began

    def stop(self) -> None:
        """Ends it; cleanly if it can be done in time."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pids(self) -> list[int]:
        """The processes that it needs."""
        assert self._process is not None
        return [self._process.pid]

    def cpu_seconds(self) -> float:
        return sum(process_cpu_clock(pid)() for pid in self.pids())

    def rss_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in self.pids())

    def kept_bytes(self) -> int:
        """The memory that it needs for what it keeps, without what waits to be collected where
        that can be told apart.
        """
        return self.rss_bytes()
