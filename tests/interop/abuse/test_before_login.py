"""What somebody without a login can do to a node: nothing that others would notice."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from interop.abuse.rig import allow, handshake, login, raw, say
from penstock.wire.apis import ApiKey
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.batches import batch
from support.calls import find_topic, produce
from support.certificates import client_context
from support.growth import MEGABYTE, growth_below
from support.helpers import make_topic
from support.neighbour import Neighbour
from support.raw import Closed, Encrypted, RawClient
from support.secured_node import SecuredNode
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

LOGIN_BYTES_MAX = 524_288
HANDSHAKE_S, LOGIN_S, SWEEP_S = 10, 30, 5
SLACK_S = 10
UNSUPPORTED_MECHANISM, ILLEGAL_STATE = 33, 34
READ, WRITE, TOPIC = 3, 4, 2


def trusted(node: SecuredNode) -> ssl.SSLContext:
    return client_context(node.certificates.authority.read_text())


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("length", [LOGIN_BYTES_MAX + 1, 90 * MEGABYTE, 2**31 - 1, -1])
@pytest.mark.parametrize("version", [None, 0], ids=["at once", "between raw messages"])
def test_an_oversized_frame_is_refused_by_its_length(
    locked: SecuredNode, listener: str, length: int, version: int | None
) -> None:
    host, port = locked.host, locked.ports[listener]
    tls = listener == "SASL_SSL"
    with growth_below(locked, 30):
        client = Encrypted(host, port, trusted(locked)) if tls else RawClient(host, port)
        with client:
            if version is not None:
                client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
            client.socket.sendall(struct.pack(">i", length))
            assert client.is_closed(10)


def test_frames_that_never_end_take_nobodys_memory(locked: SecuredNode) -> None:
    """As large as they may be, from more connections than `queued.max.request.bytes` has room for:
    who is in goes on, with requests that do not arrive in one piece.
    """
    topic = make_topic(locked, "beside-logins")
    allow(locked, (WRITE, TOPIC, topic))
    with contextlib.ExitStack() as stack:
        user = stack.enter_context(login(locked))
        known = find_topic(user, topic)
        stack.enter_context(growth_below(locked, 120))
        for _ in range(600):
            peer = stack.enter_context(raw(locked))
            peer.socket.sendall(struct.pack(">i", LOGIN_BYTES_MAX) + bytes(20_000))
        for _ in range(5):
            assert produce(user, known, batch([bytes(900_000)])).error_code == 0
        with login(locked) as late:
            assert late.call(MetadataRequest(topics=[]), 12).brokers


@contextlib.contextmanager
def trickling(sockets: list[socket.socket], byte: bytes) -> Iterator[Callable[[], int]]:
    """Each sends a byte every half second; yields how many still can."""
    done = threading.Event()
    open_ones = set(sockets)

    def work() -> None:
        while not done.wait(0.5):
            for each in list(open_ones):
                try:
                    each.sendall(byte)
                except OSError:
                    open_ones.discard(each)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield lambda: len(open_ones)
    finally:
        done.set()
        thread.join()
        for each in sockets:
            each.close()


@pytest.mark.timeout(120)
def test_slow_handshakes_and_slow_logins_end(locked: SecuredNode) -> None:
    """However much they seem to be about to finish."""
    began = time.monotonic()
    hello = b"\x16\x03\x01\x10\x00\x01"  # the beginning of a ClientHello of 4 KB
    shakers = [socket.create_connection((locked.host, locked.ports["SSL"])) for _ in range(40)]
    for each in shakers:
        each.sendall(hello)
    talkers = [raw(locked) for _ in range(40)]
    for client in talkers[:20]:
        handshake(client, "PLAIN")
    for client in talkers:
        client.socket.sendall(struct.pack(">i", 10_000))
    with (
        Neighbour(locked, "slow-peers"),
        trickling(shakers, b"\0") as shaking,
        trickling([client.socket for client in talkers], b"\0") as talking,
    ):
        eventually(lambda: shaking() == 0, HANDSHAKE_S + SLACK_S)
        assert talking() == len(talkers), "they have more time"
        eventually(lambda: talking() == 0, LOGIN_S + SWEEP_S + SLACK_S)
        assert time.monotonic() - began > LOGIN_S
        reasons = {"reason": "login", "listener": "SASL_PLAINTEXT"}
        assert locked.metric("penstock_connections_refused_total", **reasons) >= len(talkers)


@pytest.mark.parametrize(
    "mechanism",
    ["", "ANONYMOUS", "CRAM-MD5", "DIGEST-MD5", "EXTERNAL", "GSSAPI", "NTLM", "plain",
     "SCRAM-SHA-1", "SCRAM-SHA-512-PLUS", "PLAIN,SCRAM-SHA-512", "PLAIN\0", "x" * 30_000],
)  # fmt: skip
def test_a_mechanism_that_is_not_enabled(locked: SecuredNode, mechanism: str) -> None:
    with raw(locked) as client:
        assert handshake(client, mechanism) == UNSUPPORTED_MECHANISM
        assert client.is_closed(10)


def test_a_mechanism_cannot_be_changed_on_the_way(locked: SecuredNode) -> None:
    """Who has agreed on SCRAM gets in by nothing weaker."""
    plain = b"\0writer\0plain-password-of-writer"
    with raw(locked) as client:
        handshake(client, "SCRAM-SHA-512")
        assert say(client, plain).error_code != 0
        assert client.is_closed(10)
    with raw(locked) as client:
        handshake(client, "SCRAM-SHA-512")
        assert say(client, b"n,,n=ann,r=abcdef").error_code == 0
        with contextlib.suppress(Closed):
            assert handshake(client, "PLAIN") == ILLEGAL_STATE
        assert client.is_closed(10)
    with raw(locked) as client:
        handshake(client, "SCRAM-SHA-512")
        with contextlib.suppress(Closed):
            assert handshake(client, "PLAIN") != 0
        assert client.is_closed(10)


def test_an_old_version_of_tls(locked: SecuredNode) -> None:
    context = trusted(locked)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Encrypted(locked.host, locked.ports["SSL"], context)


def test_no_request_is_served_before_a_login(locked: SecuredNode) -> None:
    """Nor between its messages."""
    for key in set(ApiKey) - {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}:
        for begun in (False, True):
            with raw(locked) as client:
                if begun:
                    handshake(client, "PLAIN")
                client.send_frame(struct.pack(">hhih", key, 0, 1, -1) + bytes(16))
                with pytest.raises(Closed):
                    client.receive_frame()
