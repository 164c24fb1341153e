"""RabbitMQ as Debian packages it, started without its service: quorum queues, and streams.

Everything that it writes is in its folder: data, logs, Erlang's cookie. It is told to run as the
service does, where its shell script becomes the Erlang machine (`RABBITMQ_ALLOW_INPUT`) instead of
staying as its parent; so the process that was started is the one to be measured and stopped.
Ctrl-C is meant for the load: the Erlang machine is told to ignore it (`+B i`), as the script does
when it stays.

Erlang wants a port mapper, epmd. It would start one that outlives it, so one on a port of our own
is started before and ended after; its start is not part of the start-up time (a few
milliseconds), its memory and processor time are counted. The small helpers that the Erlang
machine runs (a resolver, the watch over the disk) are not.

Limits of memory and disk are RabbitMQ's own: above 40 % of the machine's memory, or with less than
50 MB of free disk, it stops reading from publishers.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from tests.support.process import free_port

from .amqp_queue import AmqpQueue
from .amqp_wire import AmqpWire
from .queue_wire import QueueWire
from .rabbit_stream_wire import RabbitStreamWire
from .server import POLL_S, Server
from .wire import PeerError

SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
ANSWER_S_MAX = 2.0
EPMD_S_MAX = 10.0


class RabbitMQ(Server):
    """What both kinds have in common."""

    plugins: ClassVar[str] = ""
    """The plugins to enable, as Erlang writes a list."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        super().__init__(folder, fsync=fsync)
        self._epmd_port = free_port()
        self._between_nodes_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        if not SCRIPT.exists() or shutil.which("epmd") is None:
            return "RabbitMQ is not installed (Debian: rabbitmq-server)"
        return None

    @classmethod
    def version(cls) -> str:
        return SCRIPT.resolve().parents[1].name.removeprefix("rabbitmq_server-")

    def command(self) -> list[str]:
        (self.folder / "rabbitmq.conf").write_text(self.settings())
        (self.folder / "enabled_plugins").write_text(f"[{self.plugins}].\n")
        (self.folder / "rabbitmq-env.conf").touch()
        return [str(SCRIPT), "-noinput", "+B", "i"]

    def settings(self) -> str:
        """Only where it listens; the rest is as RabbitMQ has it."""
        return f"listeners.tcp.1 = {self.host}:{self.port}\n"

    def environment(self) -> dict[str, str]:
        folder = self.folder.resolve()
        return os.environ | {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._between_nodes_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "ERL_CRASH_DUMP": str(folder / "crash.dump"),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": self.host,
        }

    def start(self) -> float:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start_epmd()
        return super().start()

    def stop(self) -> None:
        super().stop()
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            epmd.terminate()
            epmd.wait()

    @abstractmethod
    def wire(self) -> AmqpWire | RabbitStreamWire: ...

    def answers(self) -> bool:
        """A login, which it grants when it has started."""
        try:
            with self.wire().session(ANSWER_S_MAX):
                return True
        except PeerError:
            return False

    def pids(self) -> list[int]:
        assert self._epmd is not None
        return [*super().pids(), self._epmd.pid]

    def _start_epmd(self) -> None:
        command = ["epmd", "-address", self.host, "-port", str(self._epmd_port)]
        with (self.folder / "epmd.log").open("ab") as log:
            self._epmd = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.perf_counter() + EPMD_S_MAX
        while not self._epmd_listens():
            if self._epmd.poll() is not None or time.perf_counter() > deadline:
                self.stop()
                raise PeerError(f"epmd does not listen: look at {self.folder}/epmd.log")
            time.sleep(POLL_S)

    def _epmd_listens(self) -> bool:
        try:
            socket.create_connection((self.host, self._epmd_port), ANSWER_S_MAX).close()
        except OSError:
            return False
        return True


class RabbitMQQuorumQueue(RabbitMQ):
    """Quorum queues have every message in a log on disk before they confirm it; there is no other
    mode, so `fsync` changes nothing.
    """

    name = "RabbitMQ quorum queue"
    reads_again = False
    queues = True

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        super().__init__(folder, fsync=fsync)
        self._wire = AmqpWire(self.host, self.port)

    @property
    def durability(self) -> str:
        return "fdatasync before each confirm, shared by what waits (its only mode)"

    def wire(self) -> AmqpWire:
        return self._wire

    def new_queue_wire(self) -> QueueWire:
        return AmqpQueue(self.host, self.port)


class RabbitMQStream(RabbitMQ):
    """Streams are written to files without a sync; there is no setting for one."""

    name = "RabbitMQ stream"
    fsync_before_ack = False
    plugins = "rabbitmq_stream"

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        if fsync:
            raise PeerError(f"{self.name} cannot sync before it acknowledges: measure it without")
        super().__init__(folder, fsync=fsync)
        self._wire = RabbitStreamWire(self.host, self.port)

    @property
    def durability(self) -> str:
        return "never synced: on disk when the kernel writes it back"

    def settings(self) -> str:
        """Its AMQP port is closed: nobody uses it, and the default one may be taken."""
        return f"listeners.tcp = none\nstream.listeners.tcp.1 = {self.host}:{self.port}\n"

    def wire(self) -> RabbitStreamWire:
        return self._wire
