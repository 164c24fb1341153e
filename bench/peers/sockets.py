"""What the loads share: connections, and sending and receiving that never wait.

Nothing here knows a protocol. The connections belong to the load that has opened them.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from .server import Server
from .wire import PeerError

CONNECT_S_MAX = 30.0
DRAIN_S_MAX = 20.0
"""How long requests that are outstanding at the end may take."""
POLL_S = 0.05
RECEIVE_BYTES = 1024 * 1024
NS = 1_000_000_000


def connect(server: Server) -> socket.socket:
    """A connection as the wires want it: blocking, small writes at once."""
    try:
        sock = socket.create_connection((server.host, server.load_port), timeout=CONNECT_S_MAX)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server.secured(sock)
    except OSError as e:
        raise PeerError(
            f"cannot connect to {server.name} at port {server.load_port}: {e}"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def take(sock: socket.socket, data: bytes | bytearray | memoryview) -> int:
    """How much of `data` the kernel took."""
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0


def receive(sock: socket.socket, buffer: memoryview, name: str) -> int:
    """How many bytes have arrived in `buffer`."""
    try:
        read = sock.recv_into(buffer)
    except BlockingIOError:
        return 0
    except OSError as e:
        raise lost(name, e) from None
    if not read:
        raise lost(name, ConnectionResetError("closed by the server"))
    return read


def lost(name: str, error: OSError) -> PeerError:
    return PeerError(f"lost a connection to {name} under load: {error}")
