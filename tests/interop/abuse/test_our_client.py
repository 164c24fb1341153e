"""A server that is after our own clients: what asks for rounds of hashing without end, or for more
than a client can hold (CVE-2026-10143).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.kafka.client import Client
from penstock.kafka.connection import Connection
from penstock.kafka.errors import SecurityError
from penstock.kafka.sasl import Sasl
from penstock.kafka.security import Security
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeResponse

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

SECONDS_MAX = 5.0
PASSWORD = "pencil-of-ours"
SALT = "QSXCR+Q6sek8bf92"
Asked = Callable[[str], str]
"""From the client's nonce to the server's first message."""


def nonce_of(message: bytes) -> str:
    return message.decode().rpartition("r=")[2]


def receive(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = client.recv(size - len(got))
        if not part:
            raise ConnectionError
        got += part
    return got


def serve(client: socket.socket, asked: Asked) -> None:
    """A login by SCRAM: SaslHandshake 1, then one SaslAuthenticate, versions 0 to 2 alike."""
    with client, contextlib.suppress(ConnectionError, OSError):
        while True:
            (size,) = struct.unpack(">i", receive(client, 4))
            frame = receive(client, size)
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == 17:
                body = SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]).encode(version)
            elif key == 36:
                said = asked(nonce_of(frame.rstrip(b"\0"))).encode()
                body = SaslAuthenticateResponse(auth_bytes=said).encode(version)
            else:
                return
            flexible = b"\0" if key == 36 and version >= 2 else b""
            whole = struct.pack(">i", correlation_id) + flexible + body
            client.sendall(struct.pack(">i", len(whole)) + whole)


@contextmanager
def hostile(asked: Asked) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=serve, args=(client, asked), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[:2]


FIRST: dict[str, tuple[Asked, str]] = {
    "10^9 rounds": (lambda n: f"r={n}more,s={SALT},i=1000000000", "how often to hash"),
    "10^8 rounds": (lambda n: f"r={n}more,s={SALT},i=100000000", "iterations are not"),
    "a million and one": (lambda n: f"r={n}more,s={SALT},i=1000001", "iterations are not"),
    "one round": (lambda n: f"r={n}more,s={SALT},i=1", "iterations are not"),
    "less than none": (lambda n: f"r={n}more,s={SALT},i=-1", "how often to hash"),
    "its own nonce": (lambda n: f"r=theirs,s={SALT},i=4096", "nonce"),
    "our nonce": (lambda n: f"r={n},s={SALT},i=4096", "nonce"),
    "no salt": (lambda n: f"r={n}more,s=,i=4096", "salt"),
    "an extension": (lambda n: f"m=x,r={n}more,s={SALT},i=4096", ""),
    "a megabyte": (lambda n: f"r={n}{'x' * 1_000_000},s={SALT},i=4096", "bytes"),
    "a wrong signature": (
        lambda n: f"r={n}more,s={SALT},i=4096" if "," not in n else "v=AAAA", "signature"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRST)
def test_a_server_that_wants_too_much(case: str) -> None:
    asked, said = FIRST[case]
    security = Security(sasl=Sasl("SCRAM-SHA-256", "ann", PASSWORD))
    with hostile(asked) as address:
        began = time.monotonic()
        with pytest.raises(SecurityError) as refused:
            Connection(address, Client("test", security))
        assert time.monotonic() - began < SECONDS_MAX
    assert said in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_command_says_so_in_a_sentence() -> None:
    asked, said = FIRST["10^9 rounds"]
    with hostile(asked) as (host, port):
        ways = {
            "bootstrap.servers": f"{host}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "ann",
            "sasl.password": PASSWORD,
        }
        command = [sys.executable, "-m", "penstock.cli", "bench", "produce", "--client", "raw"]
        for name, value in ways.items():
            command += ["-X", f"{name}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1, done
    assert said in done.stderr
    assert PASSWORD not in done.stderr
