"""Penstock as it is shipped: one node with its defaults.

With `fsync` its topics have `flush.messages=1`.
"""

from __future__ import annotations

import platform
import sys
from typing import ClassVar

import penstock
from penstock.base.build import kind_of_build

from .kafka_wire import KafkaWire, answers_metadata, durability
from .queue_wire import QueueWire
from .server import Server
from .share_queue import ShareQueue
from .wire import Wire


class PenstockServer(Server):
    """`penstock serve`."""

    name: ClassVar[str] = "Penstock"
    by_age: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    acks: ClassVar[tuple[str, ...]] = ("1", "all")
    shares: ClassVar[bool] = True
    queues: ClassVar[bool] = True

    @classmethod
    def missing(cls) -> str | None:
        return None

    @classmethod
    def version(cls) -> str:
        how = f"{kind_of_build()} package"
        return f"{penstock.__version__}, {how}, on CPython {platform.python_version()}"

    @property
    def durability(self) -> str:
        return durability(self.fsync)

    def settings(self) -> dict[str, str]:
        """All that is not by default."""
        return {"listeners": f"PLAINTEXT://{self.host}:{self.port}"}

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        # HTTP stays on, as it is by default; only its port must not meet another node's.
        command += ["--data-dir", str(self.folder / "data"), "--http", "127.0.0.1:0"]
        return command + [
            part for pair in self.settings().items() for part in ("--set", "=".join(pair))
        ]

    def answers(self) -> bool:
        return answers_metadata(self.host, self.port)

    def wire(self) -> Wire:
        return KafkaWire(self.host, self.port, fsync=self.fsync, compression=self.compression)

    def new_queue_wire(self) -> QueueWire:
        return ShareQueue(self.host, self.port)
