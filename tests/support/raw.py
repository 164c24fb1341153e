"""A socket that speaks Kafka frames, for what no client library would send.

It uses Penstock's own message tables (which other tests hold against Java's classes) and nothing
else of Penstock. One connection, one thread, requests answered in order.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from typing import Any

from penstock.wire.apis import ApiKey, request_header_version, response_header_version
from penstock.wire.messages.header import RequestHeader, ResponseHeader

ANSWER_SECONDS_MAX = 30.0


class Closed(Exception):
    """The peer has closed the connection."""


class RawClient:
    """One connection to a broker."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str | None = "raw",
        seconds: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self._last_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Frames

    def send_frame(self, payload: bytes) -> None:
        """Sends one frame: its length, then the payload."""
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self) -> bytes:
        """The payload of the next frame; `Closed` when the peer hangs up instead."""
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            try:
                part = self.socket.recv(min(count, 1 << 20))
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed("end of stream")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def is_closed(self, seconds: float = ANSWER_SECONDS_MAX) -> bool:
        """Whether the peer closes within `seconds`; what it still sends is thrown away."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    # Requests

    def frame(self, request: Any, version: int) -> bytes:
        """The payload of a request with a correlation id of its own."""
        self._last_id += 1
        return self.header(type(request).API_KEY, version) + bytes(request.encode(version))

    def header(self, api_key: int, version: int, header_version: int | None = None) -> bytes:
        """A request header with the last correlation id."""
        if header_version is None:
            header_version = request_header_version(ApiKey(api_key), version)
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._last_id,
            client_id=self.client_id,
        )
        return bytes(header.encode(header_version))

    def send(self, request: Any, version: int) -> int:
        """Sends a request and returns its correlation id."""
        self.send_frame(self.frame(request, version))
        return self._last_id

    def receive(
        self, request_type: type[Any], version: int, correlation_id: int | None = None
    ) -> Any:
        """The next answer, as the response of `request_type`; it must be the one that is due."""
        payload = self.receive_frame()
        key = ApiKey(request_type.API_KEY)
        header, at = ResponseHeader.decode_from(payload, 0, response_header_version(key, version))
        wanted = self._last_id if correlation_id is None else correlation_id
        assert header.correlation_id == wanted, f"answer {header.correlation_id}, due {wanted}"
        return response_type(request_type).decode(payload[at:], version)

    def call(self, request: Any, version: int) -> Any:
        """Sends a request and returns its answer."""
        self.send(request, version)
        return self.receive(type(request), version)


class Encrypted(RawClient):
    """A connection over TLS."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        client_id: str | None = "raw",
        seconds: float = ANSWER_SECONDS_MAX,
    ) -> None:
        super().__init__(host, port, client_id, seconds)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        except BaseException:
            self.close()
            raise


def response_type(request_type: type[Any]) -> type[Any]:
    """The class of the answer to a class of request."""
    module = sys.modules[request_type.__module__]
    found: type[Any] = getattr(module, request_type.__name__.removesuffix("Request") + "Response")
    return found
