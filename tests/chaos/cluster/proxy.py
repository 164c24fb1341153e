"""The process that carries a cluster's traffic where namespaces cannot: `python proxy.py`.

It reads commands as lines of JSON from stdin and answers each with one line, and ends with stdin.
Every node has one address that everybody uses; the proxy listens there while the node itself does,
and carries bytes between the two. Whose connection it is (a node's or a client's) is asked of the
kernel and read from `/proc`. Bytes that a cut holds up go on when it heals, as TCP's own repetition
would bring them; a lost piece arrives late by one repetition. One event loop owns everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

CLIENTS = 0
CHUNK_BYTES = 64 * 1024
CHUNKS_HELD_MAX = 64
RETRANSMIT_SECONDS = 0.2
ALIVE_POLL_SECONDS = 0.02
WRITE_BUFFER_BYTES = 256 * 1024

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ANY_STATE = 0xFFFFFFFF
ANY_INTERFACE = 0
NO_COOKIE = (0xFFFFFFFF, 0xFFFFFFFF)
ANSWER_BYTES = 4096
_MESSAGE = Struct("=IHHII")  # length, kind, flags, sequence, port
_FILTER = Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS = Struct("!HH")
_SOCKET = Struct("=III")  # interface and cookie
_INODE = Struct("=I")
INODE_AT = _MESSAGE.size + 4 + 48 + 16
"""Behind the state, the socket's addresses, and four numbers."""

Address: TypeAlias = tuple[str, int]


class Shape(NamedTuple):
    """What happens to what a node sends."""

    seconds: float = 0.0
    jitter_seconds: float = 0.0
    loss: float = 0.0

    def wait(self) -> float:
        """How much later than sent the next piece arrives."""
        late = RETRANSMIT_SECONDS if self.loss and random.random() < self.loss else 0.0
        return late + max(0.0, self.seconds + random.uniform(-1, 1) * self.jitter_seconds)


class Faults:
    """The state of the network, and a way to wait for its change."""

    def __init__(self) -> None:
        self.cuts: set[tuple[int, int]] = set()
        self.shapes: dict[int, Shape] = {}
        self._changed = asyncio.Event()

    def change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def passes(self, sender: int, receiver: int) -> None:
        """Returns when what `sender` sends arrives at `receiver`."""
        while (sender, receiver) in self.cuts:
            await self._changed.wait()


class Door:
    """One node's address: open while the node listens behind it."""

    def __init__(self, node_id: int, port: int, target: Address, proxy: Proxy) -> None:
        self.node_id = node_id
        self.port = port
        self.target = target
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._carried: set[asyncio.Task[None]] = set()
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Opens the door when the node listens; whoever finds it dead closes the door."""
        while True:
            if self._server is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection(*self.target)
                    writer.close()
                    self._server = await asyncio.start_server(self._enter, "127.0.0.1", self.port)
            await asyncio.sleep(ALIVE_POLL_SECONDS)

    def shut(self) -> None:
        """The node is dead: its address refuses, its connections break."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._carried:
            task.cancel()

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            origin = self._proxy.origin(*ends)
            await self._proxy.faults.passes(origin, self.node_id)
            await self._proxy.faults.passes(self.node_id, origin)
            await self._carry(origin, reader, writer)
        except OSError:
            self.shut()
        finally:
            writer.transport.abort()

    async def _carry(
        self, origin: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        behind, ahead = await asyncio.open_connection(*self.target)
        try:
            ways = [
                asyncio.create_task(self._one_way(origin, self.node_id, reader, ahead)),
                asyncio.create_task(self._one_way(self.node_id, origin, behind, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
        finally:
            ahead.transport.abort()

    async def _one_way(
        self, sender: int, receiver: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carries bytes until the sender ends; each piece waits its time, in order."""
        loop = asyncio.get_running_loop()
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_HELD_MAX)
        writer.transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)

        async def take() -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(CHUNK_BYTES):
                    shape = self._proxy.faults.shapes.get(sender)
                    await held.put((loop.time() + (shape.wait() if shape else 0.0), data))
            await held.put((loop.time(), b""))

        taking = asyncio.create_task(take())
        try:
            while True:
                due, data = await held.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await self._proxy.faults.passes(sender, receiver)
                if not data:
                    return
                writer.write(data)
                with contextlib.suppress(OSError):
                    await writer.drain()
        finally:
            taking.cancel()


class Proxy:
    """All doors, and the commands that change things."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.doors: dict[int, Door] = {}
        self.pids: dict[int, int] = {}

    def origin(self, peer: Address, here: Address) -> int:
        """The node whose process has the other end of a connection to `here`, or CLIENTS."""
        inode = _inode(peer, here)
        if inode is None:
            return CLIENTS
        for node_id, pid in self.pids.items():
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.path) == f"socket:[{inode}]":
                            return node_id
        return CLIENTS

    def command(self, op: str, **what: Any) -> None:
        """Carries one command out."""
        node = what.get("node", CLIENTS)
        if op == "up":
            self.pids[node] = what["pid"]
            if node not in self.doors:
                target = (what["host"], what["target"])
                self.doors[node] = Door(node, what["port"], target, self)
        elif op == "down":
            self.pids.pop(node, None)
            if node in self.doors:
                self.doors[node].shut()
        elif op == "cut":
            self.faults.cuts.add((node, what["receiver"]))
        elif op == "shape":
            self.faults.shapes[node] = Shape(*what["shape"])
        elif op == "heal":
            self.faults.cuts.clear()
            self.faults.shapes.clear()
        else:
            raise ValueError(f"no command {op}")
        self.faults.change()


def _inode(peer: Address, here: Address) -> int | None:
    """The inode of the socket at the other end of a connection to us; None if it is gone.

    The kernel is asked for this one socket (sock_diag(7)). To look for it in `/proc/net/tcp` costs
    as much as there are sockets on the machine: 50 ms with ten thousand, and while connections come
    more quickly than that the proxy does nothing else.
    """
    ports = _PORTS.pack(peer[1], here[1])
    hosts = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _ in (peer, here))
    asked = _FILTER.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ANY_STATE) + ports + hosts
    asked += _SOCKET.pack(ANY_INTERFACE, *NO_COOKIE)
    size = _MESSAGE.size + len(asked)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(_MESSAGE.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + asked)
        answer = kernel.recv(ANSWER_BYTES)
    _, kind, *_ = _MESSAGE.unpack_from(answer)
    if kind != SOCK_DIAG_BY_FAMILY:
        return None
    (inode,) = _INODE.unpack_from(answer, INODE_AT)
    return int(inode)


async def serve() -> None:
    """Commands until stdin ends."""
    proxy = Proxy()
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        proxy.command(**json.loads(line))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
