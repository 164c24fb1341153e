"""Blocking connections that speak the protocol themselves, for requests that confluent-kafka has
no call for.

A connection carries one request at a time. What goes wrong is an `OSError` here; the caller says
it in words.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TypeVar

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster, parse_addresses
from penstock.wire.apis import ApiKey, request_header_version, response_header_version
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.schema import Message

CLIENT_ID = "penstock-cli"
FIND_COORDINATOR_VERSION = 2
"""The last that names one key, which is all that is asked; every broker serves it."""
GROUP, TRANSACTION = 0, 1
"""What a coordinator can be looked for; the numbers are the protocol's."""
_KEY_NOUNS = {GROUP: "group", TRANSACTION: "transactional id"}
RETRY_S = 0.1
_LENGTH = struct.Struct(">i")
_R = TypeVar("_R", bound=Message)


class Connection:
    """Sends requests to one broker and receives their answers."""

    __slots__ = ("_socket",)

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def wait_at_most(self, timeout_s: float) -> None:
        """How long each wait may take from now on."""
        self._socket.settimeout(timeout_s)

    def call(self, request: Message, answer: type[_R], version: int) -> _R:
        """The answer to `request`, in the same version."""
        self.send(request, version)
        return self.receive(answer, version)

    def send(self, request: Message, version: int) -> None:
        """Sends a request whose answer will be received later."""
        key = _api_key(type(request))
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=0,
            client_id=CLIENT_ID,
        )
        body = header.encode(request_header_version(key, version)) + request.encode(version)
        self._socket.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self, answer: type[_R], version: int) -> _R:
        """The answer to the request that was sent."""
        payload = self._receive(_LENGTH.unpack(self._receive(_LENGTH.size))[0])
        header_version = response_header_version(_api_key(answer), version)
        _, pos = ResponseHeader.decode_from(payload, 0, header_version)
        return answer.decode(payload[pos:], version)

    def _receive(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            part = self._socket.recv(count - len(got))
            if not part:
                raise ConnectionResetError("closed by the broker")
            got += part
        return bytes(got)


def _api_key(message: type[Message]) -> ApiKey:
    if message.API_KEY is None:
        raise InvariantBroken(f"{message.__name__} is no request or answer")
    return ApiKey(message.API_KEY)


def find_coordinator(
    cluster: Cluster, key: str, doing: str, key_type: int = GROUP
) -> tuple[str, int]:
    """The address of the coordinator of a group or a transactional id, which may take a moment to
    be there.
    """
    deadline = time.monotonic() + cluster.timeout_s
    while True:
        why = ""
        for address in parse_addresses(cluster.bootstrap):
            try:
                with Connection(address, cluster.timeout_s) as connection:
                    request = FindCoordinatorRequest(key=key, key_type=key_type)
                    found = connection.call(
                        request, FindCoordinatorResponse, FIND_COORDINATOR_VERSION
                    )
            except OSError as e:
                why = (e.strerror or str(e)).lower()
                continue
            if not found.error_code:
                return found.host, found.port
            why = ErrorCode(found.error_code).name
        if time.monotonic() > deadline:
            raise CliError(
                f"cannot {doing}: {_KEY_NOUNS[key_type]} {key!r} has no coordinator ({why}); try"
                " again, wait longer with --timeout, or look at the broker's log"
            )
        time.sleep(RETRY_S)
