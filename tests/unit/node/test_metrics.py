"""The numbers that the node itself gathers: the volume of its data, and how clients get in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

import pytest

from penstock.kafka.sasl import Sasl
from penstock.log.manager import LogManager
from penstock.peers.connection import Address, PeerConnection
from penstock.peers.errors import PeerUnreachable
from support.certificates import DAY, authority, client_context
from unit.api.test_sasl_gate import SETTINGS
from unit.net.served import run
from unit.serving.rig import Rig, running, until

SLACK_BYTES = 1 << 30
"""Others write to the same volume meanwhile."""


def numbers(rig: Rig) -> dict[str, float]:
    assert rig.node.metrics is not None
    lines = rig.node.metrics.registry.render().decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_the_volume_of_the_data_shows_its_size_and_what_is_free(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            stat = os.statvfs(tmp_path)
            found = numbers(rig)
            assert found["penstock_log_dir_total_bytes"] == stat.f_blocks * stat.f_frsize
            free = stat.f_bavail * stat.f_frsize
            assert found["penstock_log_dir_free_bytes"] == pytest.approx(free, abs=SLACK_BYTES)

    run(test)


def test_a_volume_that_is_away_takes_only_its_own_numbers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: LogManager) -> tuple[int, int]:
        raise OSError("Stale file handle")

    async def test() -> None:
        async with running(tmp_path) as rig:
            before = numbers(rig)
            monkeypatch.setattr(LogManager, "disk_space", away)
            gone = before.keys() - numbers(rig).keys()
            assert gone == {"penstock_log_dir_total_bytes", "penstock_log_dir_free_bytes"}

    run(test)


def test_the_setting_thins_the_histograms_of_a_node(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, penstock_metrics_request_histograms="none") as rig:
            peer, topic = await rig.peer(), await rig.topic()
            await peer.produce(topic)
            total = "penstock_request_total_seconds_bucket{"
            buckets = [name for name in numbers(rig) if name.startswith(total)]
            assert buckets
            assert all('le="+Inf"' in name for name in buckets)

    run(test)


def test_how_clients_get_in_by_a_listener(tmp_path: Path) -> None:
    (tmp_path / "node.pem").write_text(authority().issue("node"))
    settings = SETTINGS | {
        "listener.security.protocol.map": "LOGINS:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "node.pem"),
    }

    async def test() -> None:
        async with running(tmp_path / "data", **settings) as rig:
            before = numbers(rig)
            name = 'penstock_certificate_not_after_seconds{listener="LOGINS"}'
            assert before[name] == pytest.approx(time.time() + 60 * DAY.total_seconds(), abs=60)
            host, port = rig.node.kafka_address.rsplit(":", 1)
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"this is not TLS")
            failed = 'penstock_tls_handshakes_failed_total{listener="LOGINS"}'
            await until(lambda: numbers(rig)[failed] == before[failed] + 1)
            writer.close()
            for password, outcome in (("of-ann", "success"), ("wrong", "failure")):
                connection = PeerConnection(Address(host, int(port)), "test", lambda _: None)
                login = Sasl("PLAIN", "ann", password)
                context = client_context(authority().pem)
                with contextlib.suppress(PeerUnreachable):
                    await connection.connect(5.0, context, login)
                connection.close()
                counted = f'penstock_logins_total{{listener="LOGINS",outcome="{outcome}"}}'
                assert numbers(rig)[counted] == before[counted] + 1

    run(test)
