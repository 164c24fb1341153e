"""NATS with JetStream as Debian packages it: one server, streams in files.

It writes a message to its file before it acknowledges it, and syncs files every two minutes. In
2.9 that time is fixed in its code (`sync_interval: always` came with 2.10), so it cannot be
measured with a sync before each acknowledgement.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from .nats_queue import NatsQueue
from .nats_wire import NatsWire
from .queue_wire import QueueWire
from .server import Server
from .wire import PeerError

ANSWER_S_MAX = 2.0
VERSION_S_MAX = 30.0
STORE_BYTES_MAX = 1 << 40
PING_INTERVAL = "24h"


def _program() -> str | None:
    """Debian keeps it where only an administrator's PATH leads."""
    return shutil.which("nats-server", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


class NatsServer(Server):
    """NATS's own defaults but for two settings; `settings` says why."""

    name = "NATS JetStream"
    fsync_before_ack = False
    queues = True

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        if fsync:
            raise PeerError(f"{self.name} cannot sync before it acknowledges: measure it without")
        super().__init__(folder, fsync=fsync)
        self._wire = NatsWire(self.host, self.port)

    @classmethod
    def missing(cls) -> str | None:
        return None if _program() else "NATS is not installed (Debian: nats-server)"

    @classmethod
    def version(cls) -> str:
        """It says `nats-server: v2.9.10`."""
        said = subprocess.run(
            [_program() or "nats-server", "--version"],
            capture_output=True,
            check=True,
            text=True,
            timeout=VERSION_S_MAX,
        )
        return said.stdout.split()[-1].removeprefix("v")

    @property
    def durability(self) -> str:
        return "written to the file before the ack, fsync every 2 minutes (fixed)"

    def settings(self) -> str:
        """`max_file_store`: by itself it takes three quarters of the disk that is free at its
        start, which differs from round to round. `ping_interval`: the load does not answer a
        PING, and without this NATS closes its connections after some minutes.
        """
        return (
            f'listen: "{self.host}:{self.port}"\n'
            f'ping_interval: "{PING_INTERVAL}"\n'
            "jetstream {\n"
            f"  store_dir: {json.dumps(str(self.folder.resolve() / 'data'))}\n"
            f"  max_file_store: {STORE_BYTES_MAX}\n"
            "}\n"
        )

    def command(self) -> list[str]:
        settings = self.folder / "nats.conf"
        settings.write_text(self.settings())
        return [_program() or "nats-server", "-c", str(settings)]

    def answers(self) -> bool:
        try:
            with self._wire.session(ANSWER_S_MAX) as session:
                session.get("$JS.API.INFO")
        except PeerError:
            return False
        return True

    def wire(self) -> NatsWire:
        return self._wire

    def new_queue_wire(self) -> QueueWire:
        return NatsQueue(self.host, self.port)
