"""Handshakes: bounded in time and number, counted like any connection, and what comes after them
is byte-exact.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.auth.principal import anonymous
from penstock.base.file_region import FileRegion
from penstock.kafka.security import tls_of
from penstock.net import tls as net_tls
from penstock.net.admission import Admission, ConnectionLimits
from penstock.net.answer_stream import Part
from penstock.net.connection import Connection, Exchange
from penstock.net.tls import ListenerTls, NameOf, server_context
from support.certificates import DAY, authority, client_context
from unit.net.served import PRODUCE, Served, answer, frame, run, served, settled, until

CLIENT = client_context(authority().pem)
LARGE = 5_000_000


@pytest.fixture
def tls(tmp_path: Path) -> ListenerTls:
    return listener_tls(tmp_path)


def listener_tls(
    folder: Path, client_auth: str = "none", name_of: NameOf | None = None, **settings: str
) -> ListenerTls:
    (folder / "node.pem").write_text(authority().issue("node"))
    (folder / "ca.pem").write_text(authority().pem)
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    more = {name.replace("_", "."): value for name, value in settings.items()}
    return ListenerTls(server_context(tls_of(texts | more), client_auth), name_of)


def knock(net: Served) -> socket.socket:
    """A connection whose peer says nothing."""
    return socket.create_connection(net.address)


async def hung_up(sock: socket.socket) -> bytes:
    """What the peer sends before it hangs up."""
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    received = b""
    try:
        async with asyncio.timeout(20):
            while got := await loop.sock_recv(sock, 4096):
                received += got
    except ConnectionError:
        pass
    finally:
        sock.close()
    return received


def test_a_request_is_answered(tls: ListenerTls) -> None:
    async def test() -> None:
        async with served(tls=tls) as net:
            client = await net.client(CLIENT)
            await client.send(frame(1) + frame(2))
            assert await client.receive_ids(2) == [1, 2]
            (connection,) = net.server.connections
            assert connection.principal == anonymous("127.0.0.1")
            assert net.server.open_connections == 1

    run(test)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_version_can_be_chosen(tmp_path: Path, version: str) -> None:
    async def test() -> None:
        tls = listener_tls(tmp_path, ssl_enabled_protocols=version)
        async with served(tls=tls) as net:
            client = await net.client(CLIENT)
            spoken: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
            assert spoken.version() == version
            assert spoken.session is None or not spoken.session.has_ticket

    run(test)


def test_a_handshake_has_a_deadline(
    tls: ListenerTls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        monkeypatch.setattr(net_tls, "HANDSHAKE_S_MAX", 0.2)
        async with served(tls=tls) as net:
            assert await hung_up(knock(net)) == b""
            await until(lambda: tls.failed_total == 1)
            assert not net.server.open_connections
            assert net.server.refused_total["handshake"] == 1
            client = await net.client(CLIENT)  # others are served
            await client.send(frame(1))
            assert await client.receive_ids(1) == [1]

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "it took more than 0.2 s" in caplog.text


def test_the_oldest_handshake_makes_room(tls: ListenerTls, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(net_tls, "HANDSHAKES_MAX", 3)
        async with served(tls=tls) as net:
            silent = [knock(net) for _ in range(3)]
            await until(lambda: net.server.open_connections == 3)
            client = await net.client(CLIENT)
            await client.send(frame(1))
            assert await client.receive_ids(1) == [1]
            assert await hung_up(silent.pop(0)) == b""
            await until(lambda: net.server.open_connections == 3)  # two silent, one made
            assert tls.failed_total == 1
            for one in silent:
                one.close()

    run(test)


def test_handshakes_given_up_before_they_begin_count_no_more(
    tls: ListenerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(net_tls, "HANDSHAKES_MAX", 1)
        admission = Admission()
        async with served(admission, tls=tls) as net:
            silent = [knock(net) for _ in range(20)]  # accepted in one turn of the loop
            await until(lambda: tls.failed_total == 19)
            assert admission.per_ip["127.0.0.1"] == 1
            for one in silent:
                one.close()

    run(test)


@pytest.mark.parametrize("data", [frame(1), b"GET / HTTP/1.1\r\n\r\n", bytes(64)])
def test_plain_bytes_are_refused(
    tls: ListenerTls, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served(tls=tls) as net:
            plain = knock(net)
            plain.send(data)
            await hung_up(plain)
            await until(lambda: tls.failed_total == 1)
            assert net.script.seen == []
            assert net.server.refused_total["handshake"] == 1

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "the TLS handshake failed" in caplog.text


def test_who_only_looks_whether_somebody_listens_is_not_logged(
    tls: ListenerTls, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served(tls=tls) as net:
            knock(net).close()
            resetting = knock(net)
            resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            resetting.close()
            await until(lambda: tls.failed_total == 2)
            assert not net.server.refused_total

    with caplog.at_level(logging.INFO):
        run(test)
    assert caplog.text == ""


def test_who_is_over_its_quota_is_held_without_a_handshake(tls: ListenerTls) -> None:
    async def test() -> None:
        held_s = 0.3
        admission = Admission(over_quota_s=lambda _: held_s)
        async with served(admission, tls=tls) as net:
            began = net.server.loop.time()
            assert await hung_up(knock(net)) == b""
            assert net.server.loop.time() - began >= held_s * 0.9
            assert net.server.refused_total == {"connection_creation_rate": 1}
            assert (admission.held, tls.failed_total) == (0, 0)

    run(test)


def test_limits_count_before_the_handshake(tls: ListenerTls) -> None:
    async def test() -> None:
        admission = Admission(ConnectionLimits(per_ip_max=2))
        async with served(admission, tls=tls) as net:
            silent = [knock(net) for _ in range(2)]
            await until(lambda: net.server.open_connections == 2)
            assert await hung_up(knock(net)) == b""
            assert net.server.refused_total["max.connections.per.ip"] == 1
            silent.pop().close()
            await until(lambda: admission.per_ip["127.0.0.1"] == 1)
            client = await net.client(CLIENT)
            await client.send(frame(1))
            assert await client.receive_ids(1) == [1]
            assert admission.per_ip["127.0.0.1"] == 2  # it counts once, not twice
            silent.pop().close()

    run(test)


def test_who_comes_too_quickly_waits_for_the_handshake(tls: ListenerTls) -> None:
    async def test() -> None:
        async with served(Admission(ConnectionLimits(rate_max=5)), tls=tls) as net:
            began = asyncio.get_running_loop().time()
            for number in range(9):  # five at once, the others at their time
                client = await net.client(CLIENT)
                await client.send(frame(number))
                assert await client.receive_ids(1) == [number]
            assert asyncio.get_running_loop().time() - began > 0.5

    run(test)


def test_large_frames_are_byte_exact(tls: ListenerTls) -> None:
    async def test() -> None:
        async with served(tls=tls) as net:
            net.script.body = lambda number: net.script.bodies[number - 1]
            client = await net.client(CLIENT)
            bodies = [random.Random(size).randbytes(size) for size in (1, LARGE, 70_000, LARGE)]
            for number, body in enumerate(bodies, 1):
                client.send_unread(frame(number, key=PRODUCE, body=body))
            for number, body in enumerate(bodies, 1):
                assert await client.receive() == (number, body)

    run(test)


@pytest.mark.parametrize("seed", range(6))
def test_regions_of_files_are_byte_exact(tls: ListenerTls, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = dice.randbytes(LARGE)
    path = tmp_path / "segment"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    kept = 0
    bodies: dict[int, bytes] = {}

    def back() -> None:
        nonlocal kept
        kept -= 1

    def give(connection: Connection, number: int) -> bool:
        nonlocal kept
        parts: list[Part] = []
        bodies[number] = b""
        for _ in range(dice.randrange(1, 8)):
            size = dice.choice([1, 100, 70_000, 1_500_000])
            at = dice.randrange(LARGE - size)
            bodies[number] += data[at : at + size]
            if dice.random() < 0.6:
                kept += 1
                parts.append(FileRegion(fd, at, size, back))
            else:
                parts.append(data[at : at + size])
        head = struct.pack(">ii", 4 + len(bodies[number]), number)
        Exchange(connection, 1, 0, number, 0).finish([head, *parts])
        return True

    async def test() -> None:
        async with served(tls=tls, send_buffer_bytes=64 * 1024) as net:
            net.script.hook = give
            client = await net.client(CLIENT)
            for number in range(1, 7):
                await client.send(frame(number))
                if dice.random() < 0.5:
                    client.stop_reading()
                    await asyncio.sleep(0.01)
                    client.go_on_reading()
            for number in range(1, 7):
                assert await client.receive() == (number, bodies[number])

    try:
        run(test)
    finally:
        os.close(fd)
    assert kept == 0


def test_stop_gives_up_handshakes_and_answers_what_has_arrived(tls: ListenerTls) -> None:
    async def test() -> None:
        async with served(tls=tls) as net:
            net.script.at_once = False
            client = await net.client(CLIENT)
            await client.send(frame(1))
            silent = knock(net)
            await until(lambda: net.script.seen == [1] and net.server.open_connections == 2)
            stop = asyncio.create_task(net.server.stop(10.0))
            assert await hung_up(silent) == b""
            assert not stop.done()
            net.script.finish(1)
            assert await client.receive_ids(1) == [1]
            assert await client.is_closed()
            await stop
            with pytest.raises(ConnectionRefusedError):
                knock(net)

    run(test)


def test_a_new_context_is_for_new_connections(tls: ListenerTls, tmp_path: Path) -> None:
    other = authority("other")

    async def test() -> None:
        async with served(tls=tls) as net:
            before = await net.client(CLIENT)
            (tmp_path / "node.pem").write_text(other.issue("node"))
            texts = {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(tmp_path / "node.pem"),
            }
            tls.context = server_context(tls_of(texts), "none")
            with pytest.raises(ssl.SSLCertVerificationError):
                await net.client(CLIENT)
            after = await net.client(client_context(other.pem))
            for client in (before, after):
                await client.send(frame(1))
                assert await client.receive_ids(1) == [1]

    run(test)


def nobody(_: bytes) -> str:
    raise ValueError("no rule is for it")


@pytest.mark.parametrize(
    ("client_auth", "shows", "name_of", "principal"),
    [
        ("required", True, lambda _: "ann", "User:ann"),
        ("requested", True, lambda _: "ann", "User:ann"),
        ("requested", False, lambda _: "ann", "User:ANONYMOUS"),
        ("required", True, None, "User:ANONYMOUS"),
        ("none", True, lambda _: "ann", "User:ANONYMOUS"),
        ("required", False, lambda _: "ann", None),
        ("required", True, nobody, None),
    ],
)
def test_a_certificate_names_the_client(
    tmp_path: Path,
    client_auth: str,
    shows: bool,
    name_of: Callable[[bytes], str] | None,
    principal: str | None,
) -> None:
    identity = tmp_path / "client.pem"
    identity.write_text(authority().issue("client"))

    async def test() -> None:
        async with served(tls=listener_tls(tmp_path, client_auth, name_of)) as net:
            context = client_context(authority().pem, identity if shows else None)
            try:
                client = await net.client(context)
                await client.send(frame(1))
                seen = await client.reader.readexactly(8)
            except (OSError, asyncio.IncompleteReadError):
                seen = b""
            if principal is None:
                assert seen == b""
                assert net.script.seen == []
                assert await settled(lambda: net.server.open_connections) == 0
            else:
                assert seen == answer(1)
                assert [c.principal.text for c in net.server.connections] == [principal]

    run(test)


def test_certificates_of_strangers_and_ended_ones_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tls=listener_tls(tmp_path, "required")) as net:
            for number, pem in enumerate(
                (authority("stranger").issue("client"), authority().issue("client", lasts=-DAY)), 1
            ):
                identity = tmp_path / "client.pem"
                identity.write_text(pem)
                try:
                    client = await net.client(client_context(authority().pem, identity))
                    assert await client.is_closed()
                except OSError:
                    pass  # so TLS 1.2 says it
                await until(
                    lambda expected=number: net.server.refused_total["handshake"] == expected
                )

    run(test)
