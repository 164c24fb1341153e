"""Certificates that change while a node runs: of files and of settings, for new connections; what
cannot be used changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.base.clock import SystemClock
from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.table import ConfigError
from penstock.kafka.errors import SettingError
from penstock.net.server import NetLimits, Server
from penstock.node.certificates import Certificates
from support.certificates import DAY, HOST, authority, client_context
from unit.net.served import Script, Served, frame, run, settled, until

OURS, THEIRS = authority(), authority("other")


def made(config: BrokerConfig) -> Certificates:
    return Certificates(config, SystemClock().now_ms)


class Files:
    def __init__(self, folder: Path) -> None:
        self.node, self.trust = folder / "node.pem", folder / "trust.pem"
        self.client = folder / "client.pem"
        self.node.write_text(OURS.issue("node"))
        self.trust.write_text(OURS.pem)
        self.client.write_text(OURS.issue("client"))

    def config(self, **more: str) -> BrokerConfig:
        texts = {
            "log.dirs": "unused",
            "listeners": "SSL://127.0.0.1:1",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.node),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "penstock.ssl.reload.interval.ms": "20",
        }
        more = {name.replace("_", "."): value for name, value in more.items()}
        return broker_config(texts | more)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def served(certificates: Certificates) -> AsyncIterator[Served]:
    script = Script()
    tls = certificates.load("SSL")
    server = Server("SSL", NetLimits(), script, script.answered, None, tls)
    net = Served(server, script, server.bind(HOST, 0))
    await server.start()
    certificates.begin()
    try:
        yield net
    finally:
        certificates.stop()
        for client in net.clients:
            client.close()
        await server.stop(0.0)


async def answers(net: Served, trusted: str, identity: Path | None = None) -> bool:
    """Whether a new connection is served."""
    try:
        client = await net.client(client_context(trusted, identity))
        await client.send(frame(1))
        return (await client.receive())[0] == 1
    except (OSError, asyncio.IncompleteReadError):
        return False


async def becomes(net: Served, trusted: str, identity: Path | None = None) -> None:
    async with asyncio.timeout(20):
        while not await answers(net, trusted, identity):
            await asyncio.sleep(0.02)


def test_a_file_that_changes_counts_for_new_connections(files: Files) -> None:
    async def test() -> None:
        certificates = made(files.config())
        async with served(certificates) as net:
            before = await net.client(client_context(OURS.pem))
            files.node.write_text(THEIRS.issue("node"))
            await becomes(net, THEIRS.pem)
            assert not await answers(net, OURS.pem)
            await before.send(frame(7))
            assert (await before.receive())[0] == 7

    run(test)


def test_settings_that_change_count_for_new_connections(files: Files, tmp_path: Path) -> None:
    async def test() -> None:
        never = files.config(penstock_ssl_reload_interval_ms="0")
        certificates = made(never)
        other = tmp_path / "other.pem"
        other.write_text(THEIRS.issue("node"))
        async with served(certificates) as net:
            before = await net.client(client_context(OURS.pem))
            certificates.settings_changed(files.config(ssl_keystore_location=str(other)))
            await becomes(net, THEIRS.pem)
            await before.send(frame(7))
            assert (await before.receive())[0] == 7

    run(test)


def test_settings_that_change_while_files_are_read_are_not_missed(
    files: Files, tmp_path: Path
) -> None:
    async def test() -> None:
        certificates = made(files.config(penstock_ssl_reload_interval_ms="0"))
        other = tmp_path / "other.pem"
        other.write_text(THEIRS.issue("node"))
        async with served(certificates) as net:
            certificates.settings_changed(files.config(penstock_ssl_reload_interval_ms="0"))
            await asyncio.sleep(0)  # the reading has begun
            certificates.settings_changed(files.config(ssl_keystore_location=str(other)))
            await becomes(net, THEIRS.pem)

    run(test)


def test_who_is_not_trusted_any_more_does_not_get_in(files: Files) -> None:
    async def test() -> None:
        config = files.config(ssl_client_auth="required")
        async with served(made(config)) as net:
            assert await answers(net, OURS.pem, files.client)
            files.trust.write_text(THEIRS.pem)
            async with asyncio.timeout(20):
                while await answers(net, OURS.pem, files.client):
                    await asyncio.sleep(0.02)
            files.client.write_text(THEIRS.issue("client"))
            await becomes(net, OURS.pem, files.client)

    run(test)


def test_the_name_of_a_client_is_mapped(files: Files) -> None:
    async def test() -> None:
        config = files.config(
            ssl_client_auth="required",
            ssl_principal_mapping_rules="RULE:^CN=(.*)$/of-$1/U",
        )
        async with served(made(config)) as net:
            assert await answers(net, OURS.pem, files.client)
            assert [c.principal.text for c in net.server.connections] == ["User:OF-CLIENT"]
            files.client.write_text(OURS.issue("client"))
        nobody = files.config(
            ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=x$/x/"
        )
        async with served(made(nobody)) as net:
            assert not await answers(net, OURS.pem, files.client)
            assert net.server.refused_total["certificate"] == 1
        with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
            made(files.config(ssl_principal_mapping_rules="RULE:(/x/"))

    run(test)


@pytest.mark.parametrize(
    ("pem", "allowed", "sentence"),
    [
        (THEIRS.issue("another"), "ssl_allow_dn_changes", "CN=another"),
        (THEIRS.issue("node", ("127.0.0.2",)), "ssl_allow_san_changes", "127.0.0.1"),
    ],
)
def test_a_certificate_in_another_name_is_refused_unless_it_is_allowed(
    files: Files, pem: str, allowed: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    def replaced(certificates: Certificates) -> bool:
        return certificates._loaded["SSL"].stamp[1][1] == os.stat(files.node).st_mtime_ns

    async def test() -> None:
        certificates = made(files.config())
        async with served(certificates) as net:
            files.node.write_text(pem)
            await until(lambda: certificates._alarm._active)
            assert await answers(net, OURS.pem)
            assert not replaced(certificates)
        lenient = made(files.config(**{allowed: "true"}))
        files.node.write_text(OURS.issue("node"))
        async with served(lenient):
            files.node.write_text(pem)
            await until(lambda: replaced(lenient))

    with caplog.at_level(logging.ERROR):
        run(test)
    (record,) = caplog.records
    assert sentence in record.__dict__["reason"]


def test_more_hosts_are_always_allowed(files: Files) -> None:
    async def test() -> None:
        async with served(made(files.config())) as net:
            files.node.write_text(THEIRS.issue("node", (HOST, "node.example")))
            await becomes(net, THEIRS.pem)

    run(test)


@pytest.mark.parametrize("broken", ["empty", "no PEM", "another key", "gone", "cut off"])
def test_broken_files_leave_the_old_ones_and_raise_an_alarm(
    files: Files, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        certificates = made(files.config())
        async with served(certificates) as net:
            text = files.node.read_text()
            match broken:
                case "empty":
                    files.node.write_text("")
                case "no PEM":
                    files.node.write_text("nonsense")
                case "another key":
                    key, _, _ = THEIRS.issue("node").partition("-----BEGIN CERT")
                    files.node.write_text(key + text[text.index("-----BEGIN CERT") :])
                case "gone":
                    files.node.unlink()
                case "cut off":
                    files.node.write_text(text[:-100])
            await until(lambda: certificates._alarm._active)
            assert await answers(net, OURS.pem)
            files.node.write_text(THEIRS.issue("node"))  # and when it is mended it is taken
            await becomes(net, THEIRS.pem)

    with caplog.at_level(logging.ERROR):
        run(test)
    assert caplog.records[0].__dict__["listener"] == "SSL"
    assert "PRIVATE" not in caplog.text


@pytest.mark.parametrize("broken", ["node", "trust"])
def test_a_node_does_not_start_with_broken_files(files: Files, broken: str) -> None:
    getattr(files, broken).write_text("nonsense")
    with pytest.raises(SettingError, match=f"{broken}.pem cannot be used as PEM"):
        made(files.config(ssl_client_auth="required")).load("SSL")


def test_the_end_of_a_certificate(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        for days, sentences in ((30, []), (13, ["ends soon"]), (-1, ["has ended"])):
            caplog.clear()
            files.node.write_text(OURS.issue("node", lasts=days * DAY))
            certificates = made(files.config())
            certificates.load("SSL")
            certificates.begin()
            await settled(lambda: len(caplog.records))  # not again and again
            certificates.stop()
            said = [record.getMessage() for record in caplog.records]
            assert len(said) == len(sentences)
            assert all(one.endswith(end) for one, end in zip(said, sentences, strict=True))
            assert (certificates.not_after_s()["SSL"] > time.time()) == (days > 0)

    with caplog.at_level(logging.ERROR):
        run(test)


def test_what_is_plain_has_no_certificate(files: Files) -> None:
    certificates = made(broker_config({"log.dirs": "unused"}))
    assert certificates.load("PLAINTEXT") is None
    assert certificates.for_peers("PLAINTEXT") is None
    assert certificates.not_after_s() == {}
    encrypted = made(files.config())
    encrypted.load("SSL")
    context = encrypted.for_peers("SSL")
    assert context is not None
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
