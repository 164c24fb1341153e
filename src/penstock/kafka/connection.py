"""Blocking connections that speak the protocol themselves, and the few that a process keeps.

A connection carries requests in order; several may be under way, and answers are taken in the order
of the requests. It is opened with the TLS and SASL that its `Client` asks for, and authenticates
again in time where the broker limits a session. What goes wrong is an `OSError`, and the caller
tries again or says it in words; a `SecurityError` or `SettingError` will not pass, and is raised
through.

`take` and `give_back` keep idle connections for the next task of a process that runs one at a time,
as Spark's Python workers do: at most `IDLE_CONNECTIONS_MAX`, the oldest is closed first. One that
the broker has closed meanwhile shows it at its first use. They belong to one thread; a connection
that is made by `Connection` belongs to the thread that made it.

Limits: an answer is at most `ANSWER_BYTES_MAX`.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from typing import Final, NoReturn, TypeVar

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.kafka.client import Address, Client, place
from penstock.kafka.errors import SecurityError
from penstock.kafka.sasl import Refused, Sasl
from penstock.kafka.security import Security, context_of, tls_error
from penstock.wire.apis import ApiKey, request_header_version, response_header_version
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.schema import Message

ANSWER_BYTES_MAX: Final = 1 << 30
IDLE_CONNECTIONS_MAX: Final = 8
SASL_HANDSHAKE_VERSION: Final = 1
SASL_AUTHENTICATE_VERSION: Final = 1
SESSION_PART: Final = 0.85
"""After this part of a session's time it is renewed; Kafka's clients take 0.85 to 0.95."""
_TLS_ALERT: Final = b"\x15\x03"
"""What an answer begins with that is TLS and no answer; as a length it would be 352 MB."""
_PASSING_TLS: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_LENGTH = struct.Struct(">i")
_R = TypeVar("_R", bound=Message)


class Connection:
    """Sends requests to one broker and receives their answers."""

    def __init__(self, address: Address, client: Client) -> None:
        self.address = address
        self.client = client
        self.under_way = 0
        self._answered = False
        self._renew_at_s = float("inf")
        self._socket = _open(address, client)
        try:
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def family(self) -> int:
        """The address family by which the broker was reached."""
        return int(self._socket.family)

    @property
    def certificate(self) -> bytes | None:
        """The broker's certificate (DER); None on a connection without TLS."""
        if not isinstance(self._socket, ssl.SSLSocket):
            return None
        return self._socket.getpeercert(binary_form=True)

    def wait_at_most(self, timeout_s: float) -> None:
        """How long each wait may take from now on."""
        self._socket.settimeout(timeout_s)

    def detach(self) -> socket.socket:
        """The socket, open and authenticated, for a caller who frames requests himself; the
        connection must not be used after that.
        """
        return self._socket

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
            client_id=self.client.client_id,
        )
        body = header.encode(request_header_version(key, version)) + request.encode(version)
        self.send_frame(_LENGTH.pack(len(body)) + body)

    def send_frame(self, frame: bytes | bytearray) -> None:
        """Send a request that is encoded, with its length."""
        if not self.under_way and time.monotonic() > self._renew_at_s:
            self._authenticate()
        try:
            self._socket.sendall(frame)
        except (ssl.SSLError, ConnectionError) as e:
            raise self._broken(e) from None
        self.under_way += 1

    def receive(self, answer: type[_R], version: int) -> _R:
        """The answer to the oldest request under way. Its records are a view of what came in."""
        payload = self.receive_frame()
        _, pos = ResponseHeader.decode_from(
            payload, 0, response_header_version(_api_key(answer), version)
        )
        return answer.decode_from(payload, pos, version)[0]

    def receive_frame(self) -> memoryview:
        """The answer to the oldest request under way as it came, without its length."""
        head = self._receive(_LENGTH.size)
        if not self._answered and bytes(head[:2]) == _TLS_ALERT:
            raise SecurityError(
                f"{self._place} speaks TLS, and {self._named('security.protocol')} is"
                f" {self.client.security.protocol}; set it to SSL or SASL_SSL"
            )
        (size,) = _LENGTH.unpack(head)
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer claims {size} bytes")
        payload = self._receive(size)
        self.under_way -= 1
        self._answered = True
        return payload

    def _receive(self, count: int) -> memoryview:
        got = memoryview(bytearray(count))
        have = 0
        while have < count:
            try:
                part = self._socket.recv_into(got[have:])
            except (ssl.SSLError, ConnectionError) as e:
                raise self._broken(e) from None
            if not part:
                raise self._broken(ConnectionResetError("closed by the broker"))
            have += part
        return got

    def _broken(self, error: ssl.SSLError | ConnectionError) -> Exception:
        """The error, with what is likely where the broker has not answered anything."""
        if isinstance(error, ssl.SSLError):
            return _said(self._place, error, self.client.security)
        if self._answered:
            return error
        wanted = f"another {self._named('security.protocol')} than {self.client.security.protocol}"
        if self.client.security.tls is not None and self.client.security.tls.chain is None:
            wanted += ", or a client's certificate"
        return ConnectionResetError(
            f"closed by the broker before it answered anything, as one does that expects {wanted}"
        )

    @property
    def _place(self) -> str:
        return place(self.address)

    def _named(self, setting: str) -> str:
        return self.client.security.spelling.name(setting)

    # -- who we are ----------------------------------------------------------------------------

    def _authenticate(self) -> None:
        sasl = self.client.security.sasl
        if sasl is None:
            return
        self._renew_at_s = float("inf")
        began_s = time.monotonic()
        request = SaslHandshakeRequest(mechanism=sasl.mechanism)
        answer = self.call(request, SaslHandshakeResponse, SASL_HANDSHAKE_VERSION)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise SecurityError(
                f"{self._place} does not take {self._named('sasl.mechanism')} {sasl.mechanism}; it"
                f" takes {', '.join(answer.mechanisms) or 'none'}"
            )
        if answer.error_code:
            self._refused(sasl, ErrorCode(answer.error_code).name)
        try:
            lifetime_ms = self._exchange(sasl)
        except Refused as e:
            self._refused(sasl, str(e))
        if lifetime_ms > 0:
            self._renew_at_s = began_s + lifetime_ms / 1000 * SESSION_PART

    def _exchange(self, sasl: Sasl) -> int:
        """How long the broker lets the session live, in milliseconds; 0 for as long as it likes."""
        exchange = sasl.exchange()
        token = next(exchange)
        while True:
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = self.call(request, SaslAuthenticateResponse, SASL_AUTHENTICATE_VERSION)
            if answer.error_code:
                code = ErrorCode(answer.error_code).name
                self._refused(sasl, answer.error_message or code)
            try:
                token = exchange.send(answer.auth_bytes)
            except StopIteration:
                return answer.session_lifetime_ms

    def _refused(self, sasl: Sasl, why: str) -> NoReturn:
        raise SecurityError(
            f"{self._place} and user {sasl.username!r} do not agree by {sasl.mechanism} ({why});"
            f" see that {self._named('sasl.mechanism')}, the name and the password are those that"
            " the broker knows"
        )


def _open(address: Address, client: Client) -> socket.socket:
    plain = socket.create_connection(address, timeout=client.connect_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, size in (
            (socket.SO_RCVBUF, client.receive_buffer_bytes),
            (socket.SO_SNDBUF, client.send_buffer_bytes),
        ):
            if size >= 0:
                plain.setsockopt(socket.SOL_SOCKET, option, size)
        plain.settimeout(client.answer_s)
        if client.security.tls is None:
            return plain
        context = context_of(client.security.tls)
        return context.wrap_socket(plain, server_hostname=address[0])
    except ssl.SSLError as e:
        plain.close()
        raise _said(place(address), e, client.security) from None
    except BaseException:
        plain.close()
        raise


def _said(where: str, error: ssl.SSLError, security: Security) -> Exception:
    """An error of TLS as the module's docstring has it."""
    if isinstance(error, _PASSING_TLS):
        protocol = security.spelling.name("security.protocol")
        return ConnectionResetError(
            f"closed by the broker during TLS: does {where} speak it ({protocol})?"
        )
    return tls_error(where, error, security.spelling)


def _api_key(message: type[Message]) -> ApiKey:
    if message.API_KEY is None:
        raise InvariantBroken(f"{message.__name__} is no request or answer")
    return ApiKey(message.API_KEY)


_idle: dict[tuple[Address, Client], tuple[Connection, float]] = {}
"""Idle connections, and since when."""
_idle_owner = 0
"""The process that made the idle connections: a forked one must not use them."""


def take(address: Address, client: Client) -> Connection:
    """An idle connection to `address`, or a new one."""
    global _idle_owner
    if _idle_owner != os.getpid():
        _idle.clear()
        _idle_owner = os.getpid()
    connection, since_s = _idle.pop((address, client), (None, 0.0))
    if connection is not None and time.monotonic() - since_s > client.idle_s:
        connection.close()
        connection = None
    return connection or Connection(address, client)


def give_back(connection: Connection) -> None:
    """Keep a connection for the next task, unless answers are still to come on it."""
    if connection.under_way:
        connection.close()
        return
    key = (connection.address, connection.client)
    if (old := _idle.pop(key, None)) is not None:
        old[0].close()
    _idle[key] = connection, time.monotonic()
    while len(_idle) > IDLE_CONNECTIONS_MAX:
        _idle.pop(next(iter(_idle)))[0].close()
