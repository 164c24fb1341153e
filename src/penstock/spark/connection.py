"""Blocking connections that speak the protocol themselves, and the few that a Python worker keeps.

A connection carries requests in order; several may be under way, and answers are taken in the order
of the requests. What goes wrong is an `OSError`; the caller says it in words.

`take` and `give_back` keep idle connections for the next task of the same Python worker, which runs
one task at a time: at most `IDLE_CONNECTIONS_MAX`, the oldest is closed first. One that the broker
has closed meanwhile shows it at its first use. Limits: an answer is at most `ANSWER_BYTES_MAX`.
Owned by the worker's only thread.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TypeAlias, TypeVar

from penstock.base.errors import InvariantBroken
from penstock.wire.apis import ApiKey, request_header_version, response_header_version
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.schema import Message

ANSWER_BYTES_MAX = 1 << 30
IDLE_CONNECTIONS_MAX = 8
TIMEOUT_S = 30.0
_LENGTH = struct.Struct(">i")
_R = TypeVar("_R", bound=Message)
Address: TypeAlias = tuple[str, int]


class Connection:
    """Sends requests to one broker and receives their answers."""

    def __init__(self, address: Address, client_id: str, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self.under_way = 0
        self._client_id = client_id
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, answer: type[_R], version: int) -> _R:
        """The answer to `request`, in the same version; nothing else may be under way."""
        self.send(request, version)
        return self.receive(answer, version)

    def send(self, request: Message, version: int) -> None:
        key = _api_key(type(request))
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=0,
            client_id=self._client_id,
        )
        body = header.encode(request_header_version(key, version)) + request.encode(version)
        self._socket.sendall(_LENGTH.pack(len(body)) + body)
        self.under_way += 1

    def receive(self, answer: type[_R], version: int) -> _R:
        """The answer to the oldest request under way. Its records are a view of what came in."""
        (size,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer claims {size} bytes")
        payload = self._receive(size)
        self.under_way -= 1
        _, pos = ResponseHeader.decode_from(
            payload, 0, response_header_version(_api_key(answer), version)
        )
        return answer.decode_from(payload, pos, version)[0]

    def _receive(self, count: int) -> memoryview:
        got = memoryview(bytearray(count))
        have = 0
        while have < count:
            part = self._socket.recv_into(got[have:])
            if not part:
                raise ConnectionResetError("closed by the broker")
            have += part
        return got


def _api_key(message: type[Message]) -> ApiKey:
    if message.API_KEY is None:
        raise InvariantBroken(f"{message.__name__} is no request or answer")
    return ApiKey(message.API_KEY)


_idle: dict[tuple[Address, str], Connection] = {}
_idle_owner = 0
"""The process that made the idle connections: a forked one must not use them."""


def take(address: Address, client_id: str) -> Connection:
    """An idle connection to `address`, or a new one."""
    global _idle_owner
    if _idle_owner != os.getpid():
        _idle.clear()
        _idle_owner = os.getpid()
    return _idle.pop((address, client_id), None) or Connection(address, client_id)


def give_back(connection: Connection) -> None:
    """Keep a connection for the next task, unless answers are still to come on it."""
    if connection.under_way:
        connection.close()
        return
    key = (connection.address, connection._client_id)
    if (old := _idle.pop(key, None)) is not None:
        old.close()
    _idle[key] = connection
    while len(_idle) > IDLE_CONNECTIONS_MAX:
        _idle.pop(next(iter(_idle))).close()


def parse_addresses(bootstrap: str) -> list[Address]:
    """The hosts and ports of `kafka.bootstrap.servers`; nothing else may stand in it."""
    found = []
    for part in filter(None, (p.strip() for p in bootstrap.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("it names no server")
    return found
