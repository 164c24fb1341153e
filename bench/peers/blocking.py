"""Blocking connections, for what happens beside the load: logging in, declaring, deleting.

Nothing is read beyond what was asked for, so the load finds a connection as the server left it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from .wire import PeerError


@contextlib.contextmanager
def own_connection(
    address: tuple[str, int], seconds_max: float, who: str
) -> Iterator[socket.socket]:
    """A connection for as long as it is used; what fails on it is PeerError."""
    try:
        with socket.create_connection(address, timeout=seconds_max) as sock:
            yield sock
    except OSError as e:
        raise PeerError(f"{who} at {address[0]}:{address[1]} did not answer: {e}") from e


def read_exactly(sock: socket.socket, count: int, who: str) -> bytes:
    """`count` bytes; PeerError when `who` closes the connection before."""
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise PeerError(f"{who} closed the connection while an answer was awaited")
        data += part
    return bytes(data)
