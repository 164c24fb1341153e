"""Connections against a peer that answers what the test says: SASL, TLS by mistake, idle ones."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.base.errors import ErrorCode
from penstock.kafka.client import Address, Client
from penstock.kafka.connection import Connection, give_back, take
from penstock.kafka.errors import SecurityError
from penstock.kafka.sasl import Sasl
from penstock.kafka.security import Security
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeResponse

Answer = Callable[[bytes], bytes]
LENGTH = struct.Struct(">i")
HEAD_BYTES = 4
"""Of an answer: the correlation id, which is 0."""
SECRET = "pencil"


class Peer:
    """Answers the requests of each connection in turn, then closes it."""

    def __init__(self, *answers: Answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answers = answers
        self.requests: list[bytes] = []
        self.address: Address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as incoming:
                for answer in self._answers:
                    head = incoming.read(LENGTH.size)
                    if not head:
                        break
                    self.requests.append(incoming.read(*LENGTH.unpack(head)))
                    connection.sendall(answer(self.requests[-1]))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(*answers: Answer) -> Peer:
        made.append(Peer(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def framed(body: bytes) -> bytes:
    return LENGTH.pack(HEAD_BYTES + len(body)) + bytes(HEAD_BYTES) + body


def handshake(_: bytes) -> bytes:
    return framed(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]).encode(1))


def token(request: bytes) -> bytes:
    """What the mechanism has sent; it is the end of the request."""
    at = request.find(b"n,,") if b"n,," in request else request.find(b"c=biws")
    return SaslAuthenticateRequest.decode_from(request, at - LENGTH.size, 1)[0].auth_bytes


def salted(request: bytes) -> bytes:
    nonce = token(request).rpartition(b"r=")[2]
    asked = b"r=" + nonce + b"more,s=" + base64.b64encode(b"salt") + b",i=4096"
    return framed(SaslAuthenticateResponse(auth_bytes=asked).encode(1))


def wrong_signature(_: bytes) -> bytes:
    shown = b"v=" + base64.b64encode(bytes(32))
    return framed(SaslAuthenticateResponse(auth_bytes=shown).encode(1))


def by_scram() -> Client:
    return Client(security=Security(sasl=Sasl("SCRAM-SHA-256", "ann", SECRET)))


def test_a_broker_that_does_not_know_the_password(peer: Callable[..., Peer]) -> None:
    there = peer(handshake, salted, wrong_signature)
    with pytest.raises(SecurityError, match="it does not know the password") as failed:
        Connection(there.address, by_scram())
    assert "'ann'" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert not any(SECRET.encode() in request for request in there.requests)


def test_a_broker_that_is_not_asked_for_this_mechanism(peer: Callable[..., Peer]) -> None:
    code = ErrorCode.ILLEGAL_SASL_STATE
    there = peer(lambda _: framed(SaslHandshakeResponse(error_code=code).encode(1)))
    with pytest.raises(SecurityError, match="ILLEGAL_SASL_STATE"):
        Connection(there.address, by_scram())


def ask(address: Address) -> MetadataResponse:
    with closing(Connection(address, Client())) as connection:
        return connection.call(MetadataRequest(topics=[]), MetadataResponse, 1)


def test_an_answer_that_is_an_alert_of_tls(peer: Callable[..., Peer]) -> None:
    there = peer(lambda _: b"\x15\x03\x03\x00\x02\x02\x50")
    with pytest.raises(SecurityError, match=r"speaks TLS, and security\.protocol is PLAIN"):
        ask(there.address)


def test_a_broker_that_closes_without_an_answer(peer: Callable[..., Peer]) -> None:
    with pytest.raises(ConnectionError, match=r"expects another security\.protocol than PLAIN"):
        ask(peer(lambda _: b"").address)


def test_idle_connections_are_used_again_for_a_time(peer: Callable[..., Peer]) -> None:
    address = peer().address
    kept, brief = Client("a client", idle_s=60), Client("a client", idle_s=0)
    with closing(take(address, kept)) as one, closing(take(address, brief)) as other:
        assert other is not one
        give_back(one)
        give_back(other)
        assert take(address, kept) is one
        with closing(take(address, brief)) as another:
            assert another is not other
