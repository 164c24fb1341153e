"""The gate of a listener with SASL: nothing passes before the login, and what a login may cost."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.api import sasl_gate
from penstock.api.dispatcher import EVERYTHING, WHILE_STARTING
from penstock.api.sasl_gate import SaslGate
from penstock.auth.scram import HASHES, salted_password
from penstock.base.errors import ErrorCode
from penstock.kafka.sasl import Sasl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from unit.net.served import run
from unit.serving.rig import Closed, Peer, Rig, one, produce_request, running, until

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="of-node" user_node="of-node" user_ann="of-ann";'
)
SETTINGS = {
    "listeners": "LOGINS://127.0.0.1:0",
    "listener.security.protocol.map": "LOGINS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.logins.plain.sasl.jaas.config": JAAS,
}
ANN = b"\0ann\0of-ann"
WRONG = b"\0ann\0wrong"


def with_rig(
    tmp_path: Path, test: Callable[[Rig], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    async def whole() -> None:
        async with running(tmp_path, **(SETTINGS | (settings or {}))) as rig:
            await test(rig)

    run(whole)


def gate(rig: Rig) -> SaslGate:
    assert isinstance(rig.server.handler, SaslGate)
    return rig.server.handler


async def handshake(peer: Peer, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await peer.call(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(peer: Peer, data: bytes) -> Any:
    return await peer.call(SaslAuthenticateRequest(auth_bytes=data), 2)


async def log_in(peer: Peer, data: bytes = ANN) -> Any:
    assert (await handshake(peer)).error_code == 0
    return await authenticate(peer, data)


async def scram(peer: Peer, mechanism: str, user: str, password: str) -> Any:
    """The last answer of a login."""
    assert (await handshake(peer, mechanism)).error_code == 0
    exchange = Sasl(mechanism, user, password).exchange()
    message = next(exchange)
    while True:
        shown = await authenticate(peer, message)
        if shown.error_code:
            return shown
        try:
            message = exchange.send(shown.auth_bytes)
        except StopIteration:
            return shown


async def make_user(rig: Rig, name: str, password: str, mechanism: str, number: int) -> None:
    salted = salted_password(HASHES[mechanism], password.encode(), b"some salt", 4096)
    wanted = ScramCredentialUpsertion(
        name=name, mechanism=number, iterations=4096, salt=b"some salt", salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(upsertions=[wanted])
    answer = await rig.broker.controller.submit(lambda c: c.alter_user_scram_credentials(request))
    assert answer.results[0].error_code == 0


def raw(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_after_the_login_everything_is_served(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        topic = await rig.topic()
        peer = await rig.peer()
        assert (await peer.call(ApiVersionsRequest(), 2)).error_code == 0
        shown = await handshake(peer)
        assert shown.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert (await authenticate(peer, ANN)).error_code == 0
        assert peer.inside.principal.text == "User:ann"
        large = one(await peer.call(produce_request(topic, None), 12))
        assert large.error_code == 0
        assert (await peer.call(MetadataRequest(topics=[]), 12)).brokers
        assert (gate(rig).successes, gate(rig).failures) == (1, 0)
        again = await peer.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE

    with_rig(tmp_path, test)


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in (17, 18, 36)])
@pytest.mark.parametrize("when", ["at once", "after ApiVersions", "after the handshake"])
def test_nothing_else_is_read_before_the_login(key: ApiKey, when: str) -> None:
    """The machine is asked by the key alone, before anything is decoded."""
    from penstock.auth.sasl import ApiVersions, Handshake, Moment, SaslConnection

    login = SaslConnection({"PLAIN": lambda: None}, "h")  # type: ignore[dict-item,return-value]
    if when != "at once":
        login.take(ApiVersions(True), Moment(0, 0.0))
    if when == "after the handshake":
        login.take(Handshake(1, "PLAIN"), Moment(0, 0.0))
    assert not login.serves(key, 0.0)
    assert not login.legal(key)


@pytest.mark.parametrize("version", [0, 99])
def test_versions_are_not_told_in_the_middle_of_a_login(tmp_path: Path, version: int) -> None:
    async def test(rig: Rig) -> None:
        peer = await rig.peer()
        assert (await handshake(peer)).error_code == 0
        peer.send_raw(raw(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1)))
        shown = struct.unpack(">ihi", await peer.receive_payload())
        assert shown == (7, ErrorCode.ILLEGAL_SASL_STATE, 0)
        assert await peer.is_closed()
        assert gate(rig).failures == 1

    with_rig(tmp_path, test)


@pytest.mark.parametrize("kind", ["produce", "fetch", "metadata", "short", "empty"])
@pytest.mark.parametrize("when", ["at once", "after the handshake", "after a failure"])
def test_the_fast_path_is_behind_the_gate(tmp_path: Path, kind: str, when: str) -> None:
    async def test(rig: Rig) -> None:
        topic = await rig.topic()
        peer = await rig.peer()
        if when != "at once":
            await handshake(peer)
        if when == "after a failure":
            peer.send(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        match kind:
            case "produce":
                peer.send(produce_request(topic, None), 12)
            case "fetch":
                peer.send(FetchRequest(max_wait_ms=0), 12)
            case "metadata":
                peer.send(MetadataRequest(topics=[]), 12)
            case "short":
                peer.send_raw(raw(b"\0"))
            case "empty":
                peer.send_raw(raw(b""))
        await until(lambda: peer.inside.closing)
        assert rig.partition(topic).log.log_end_offset == 0
        assert gate(rig).successes == 0

    with_rig(tmp_path, test)


def test_a_large_frame_is_refused_before_the_login_and_taken_after_it(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        peer = await rig.peer()
        peer.send_raw(struct.pack(">i", 4097))
        assert await peer.is_closed()
        known = await rig.peer()
        await log_in(known)
        known.send_raw(struct.pack(">i", 5_000_000) + bytes(8))
        assert await known.silent()  # it waits for the rest
        assert not known.inside.closing

    with_rig(tmp_path, test, {"sasl.server.max.receive.size": "4096"})


def test_raw_messages_of_the_mechanism(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        peer = await rig.peer()
        assert (await handshake(peer, version=0)).error_code == 0
        peer.send_raw(raw(ANN))
        assert await peer.receive_payload() == b""
        assert (await peer.call(MetadataRequest(topics=[]), 12)).brokers
        stranger = await rig.peer()
        await handshake(stranger, version=0)
        stranger.send_raw(raw(WRONG))
        assert await stranger.is_closed()
        assert (gate(rig).successes, gate(rig).failures) == (1, 1)

    with_rig(tmp_path, test)


def test_a_failure_is_answered_late_and_closes(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for data in (WRONG, b"\0nobody\0of-ann", b"\0ann", b"bob\0ann\0of-ann"):
            peer = await rig.peer()
            await handshake(peer)
            began = time.monotonic()
            shown = await authenticate(peer, data)
            assert time.monotonic() - began >= 0.29
            assert shown.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "of-ann" not in shown.error_message
            assert await peer.is_closed()
        peer = await rig.peer()
        shown = await handshake(peer, "GSSAPI")
        assert shown.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert shown.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert await peer.is_closed()
        assert gate(rig).failures == 5

    with_rig(tmp_path, test, {"connection.failed.authentication.delay.ms": "300"})


def test_a_failure_while_the_node_starts_is_late_too_and_not_answered(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        rig.node._doors.open(WHILE_STARTING)
        peer = await rig.peer()
        await handshake(peer)
        began = time.monotonic()
        with pytest.raises(Closed):
            await authenticate(peer, WRONG)
        assert time.monotonic() - began >= 0.29
        rig.node._doors.open(EVERYTHING)

    with_rig(tmp_path, test, {"connection.failed.authentication.delay.ms": "300"})


@pytest.mark.parametrize(("mechanism", "number"), [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)])
def test_users_of_the_metadata(tmp_path: Path, mechanism: str, number: int) -> None:
    async def test(rig: Rig) -> None:
        early = await rig.peer()
        assert (await scram(early, mechanism, "bob", "of-bob")).error_code == 58
        await make_user(rig, "bob", "of-bob", mechanism, number)
        peer = await rig.peer()
        assert (await scram(peer, mechanism, "bob", "of-bob")).error_code == 0
        assert peer.inside.principal.text == "User:bob"
        wrong = await rig.peer()
        assert (await scram(wrong, mechanism, "bob", "of-ann")).error_code == 58
        plain = await rig.peer()  # the same credential is good for PLAIN
        assert (await log_in(plain, b"\0bob\0of-bob")).error_code == 0
        await make_user(rig, "bob", "another", mechanism, number)
        old = await rig.peer()
        assert (await log_in(old, b"\0bob\0of-bob")).error_code == 58

    with_rig(tmp_path, test)


def test_who_has_to_authenticate_again(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        peer, lazy, other = [await rig.peer() for _ in range(3)]
        for one_ in (peer, lazy, other):
            assert 0 < (await log_in(one_)).session_lifetime_ms <= 1500
        await asyncio.sleep(1.1)  # it may not be done more often than once in a second
        assert (await log_in(peer)).error_code == 0
        assert (await peer.call(MetadataRequest(topics=[]), 12)).brokers
        assert (await log_in(other, b"\0node\0of-node")).error_code == 58  # somebody else
        deadline = time.monotonic() + 20
        while not lazy.inside.closing:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
            lazy.send(MetadataRequest(topics=[]), 12)

    with_rig(tmp_path, test, {"connections.max.reauth.ms": "1500"})


def test_requests_wait_while_a_login_is_renewed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        topic = await rig.topic()
        peer = await rig.peer()
        await log_in(peer)
        await asyncio.sleep(1.1)
        peer.send_raw(
            peer.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            + peer.frame(SaslAuthenticateRequest(auth_bytes=ANN), 2)
            + peer.frame(produce_request(topic, None), 12)
            + peer.frame(MetadataRequest(topics=[]), 12)
        )
        assert (await peer.receive()).error_code == 0
        assert (await peer.receive()).error_code == 0
        assert one(await peer.receive()).error_code == 0
        assert (await peer.receive()).brokers

    with_rig(tmp_path, test, {"connections.max.reauth.ms": "600000"})


def test_the_work_of_logins_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(rig: Rig) -> None:
        monkeypatch.setattr(sasl_gate, "LOGINS_WAITING_MAX", 0)
        peer = await rig.peer()
        await handshake(peer)
        with pytest.raises(Closed):  # not an error that a client takes for a wrong password
            await authenticate(peer, ANN)
        assert gate(rig).failures == 0
        monkeypatch.setattr(sasl_gate, "LOGINS_WAITING_MAX", 1)
        again = await rig.peer()
        assert (await log_in(again)).error_code == 0
        assert gate(rig)._work.waiting == 0

    with_rig(tmp_path, test)


def test_a_login_under_way_is_answered_by_a_node_that_stops(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        peer = await rig.peer()
        await handshake(peer)
        peer.deliver(SaslAuthenticateRequest(auth_bytes=ANN), 2)
        assert gate(rig)._work.waiting == 1
        peer.inside.close_when_answered()
        assert (await peer.receive()).error_code == 0
        assert await peer.is_closed()

    with_rig(tmp_path, test)


def test_who_hangs_up_during_a_login_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        peer = await rig.peer()
        await handshake(peer)
        peer.deliver(SaslAuthenticateRequest(auth_bytes=ANN), 2)
        peer.close()
        await until(lambda: not rig.server.connections and not gate(rig)._work.waiting)

    with_rig(tmp_path, test)


def test_settings_of_logins_change_while_the_node_runs(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        from penstock.config.broker_config import broker_config

        texts = SETTINGS | {"log.dirs": str(tmp_path), "penstock.http.listen": ""}
        more = JAAS.replace("user_ann", 'user_eve="of-eve" user_ann')
        texts["listener.name.logins.plain.sasl.jaas.config"] = more
        texts["sasl.enabled.mechanisms"] = "PLAIN"
        assert rig.node._authentication is not None
        rig.node._authentication.settings_changed(broker_config(texts))
        peer = await rig.peer()
        shown = await handshake(peer)
        assert shown.mechanisms == ["PLAIN"]
        assert (await authenticate(peer, b"\0eve\0of-eve")).error_code == 0
        texts["listener.name.logins.plain.sasl.jaas.config"] = "nonsense"
        rig.node._authentication.settings_changed(broker_config(texts))
        assert (await log_in(await rig.peer(), b"\0eve\0of-eve")).error_code == 0

    with_rig(tmp_path, test)
