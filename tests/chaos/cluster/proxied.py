"""The network of a machine that has no namespaces: every node behind a door of one proxy process.

The nodes listen on ports of their own and advertise the doors' ports, so clients and nodes reach
each other only through the proxy. It knows which node a connection comes from, so one link can be
cut, and one direction of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.places import Place
from support.process import free_port

CLIENTS = 0
STOP_SECONDS_MAX = 10


class ProxyNetwork:
    """One proxy process, a door per node."""

    KIND = "proxies"

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("proxy.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _tell(self, op: str, **what: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **what}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == b"done\n", f"the proxy process answered {answer!r} to {op}"

    def place(self, node_id: int) -> Place:
        host = "127.0.0.1"
        place = Place(host, free_port(), host, free_port(), free_port(), free_port())
        self._places[node_id] = place
        return place

    def node_up(self, node_id: int, pid: int) -> None:
        place = self._places[node_id]
        self._tell(
            "up",
            node=node_id,
            pid=pid,
            host=place.host,
            target=place.port,
            port=place.reached_port,
        )

    def node_down(self, node_id: int) -> None:
        if self._process.poll() is None:
            self._tell("down", node=node_id)

    # Faults

    def cut(self, sender: int, receiver: int) -> None:
        self._tell("cut", node=sender, receiver=receiver)

    def cut_clients(self, node_id: int) -> None:
        self._tell("cut", node=node_id, receiver=CLIENTS)
        self._tell("cut", node=CLIENTS, receiver=node_id)

    def delay(self, node_id: int, ms: int, jitter_ms: int) -> None:
        self._tell("shape", node=node_id, shape=[ms / 1000, jitter_ms / 1000, 0.0])

    def loss(self, node_id: int, percent: int) -> None:
        self._tell("shape", node=node_id, shape=[0.0, 0.0, percent / 100])

    def heal(self) -> None:
        self._tell("heal")

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)
