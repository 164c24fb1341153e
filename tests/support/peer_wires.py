"""What the tests of the benchmark's wires share: a wire's own bytes over a plain connection, and
what comes back handed to it in pieces.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.peers.server import Server
from bench.peers.sockets import connect
from bench.peers.wire import Consumer, Publisher

RECEIVE_BYTES = 64 * 1024


@contextmanager
def connections(server: Server) -> Iterator[Callable[[], socket.socket]]:
    """Makes connections that end with the block."""
    sockets: list[socket.socket] = []

    def one() -> socket.socket:
        sockets.append(connect(server))
        return sockets[-1]

    try:
        yield one
    finally:
        for sock in sockets:
            sock.close()


def cut(sock: socket.socket, piece: int) -> Iterator[memoryview]:
    """What has arrived, in pieces of so many bytes."""
    data = memoryview(sock.recv(RECEIVE_BYTES))
    assert data, "the server has closed the connection"
    for at in range(0, len(data), piece):
        yield data[at : at + piece]


def send(sock: socket.socket, publisher: Publisher, requests: int, piece: int) -> None:
    """Returns when all of them are acknowledged, and no more than they."""
    sock.sendall(bytes(publisher.request) * requests)
    done = 0
    while done < requests:
        done += sum(publisher.acknowledged(part) for part in cut(sock, piece))
    assert done == requests


def read(sock: socket.socket, consumer: Consumer, messages: int, piece: int) -> None:
    """Returns when so many have arrived, and no more than they."""
    got = 0
    while got < messages:
        for part in cut(sock, piece):
            received = consumer.received(part)
            got += received.messages
            if received.reply:
                sock.sendall(received.reply)
    assert got == messages
