"""A node's connections to one that speaks TLS and asks for a login."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from penstock.kafka.sasl import Sasl
from penstock.peers.connection import Address
from penstock.peers.errors import PeerUnreachable
from penstock.peers.peers import Channel, Peers
from penstock.peers.ways import Ways
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from support.certificates import authority, client_context
from unit.api.test_sasl_gate import SETTINGS
from unit.net.served import run
from unit.serving.rig import Rig, running

SESSION_MS = 400
LISTENER = "NODES"
NODE = Sasl("PLAIN", "node", "of-node")


def settings(folder: Path, host: str = "127.0.0.1") -> dict[str, str]:
    pem = folder / "node.pem"
    pem.write_text(authority().issue("node", (host,)))
    return SETTINGS | {
        "listener.security.protocol.map": "LOGINS:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem),
        "connections.max.reauth.ms": str(SESSION_MS),
    }


def address_of(rig: Rig) -> Address:
    host, port = rig.node.kafka_address.rsplit(":", 1)
    return Address(host, int(port), LISTENER)


def peers_with(sasl: Sasl | None, context: ssl.SSLContext | None) -> Peers:
    logins = {} if sasl is None else {LISTENER: sasl}
    return Peers("node-2", ways=Ways(tls=lambda _: context, logins=logins))


def test_a_session_that_ends_costs_no_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path / "data", **settings(tmp_path)) as rig:
            peers, address = peers_with(NODE, client_context(authority().pem)), address_of(rig)
            used = set()
            loop = asyncio.get_running_loop()
            end_s = loop.time() + 5 * SESSION_MS / 1000
            while loop.time() < end_s:
                used.add(await peers.connection(address, Channel.QUORUM))
                answer = await peers.send(address, Channel.QUORUM, DescribeClusterRequest())
                assert answer.error_code == 0
            assert len(used) > 2
            peers.close()

    run(test)


@pytest.mark.parametrize(
    ("sasl", "trusted", "said"),
    [
        (Sasl("PLAIN", "node", "of-nobody"), "authority", "does not let 'node' in by PLAIN"),
        (Sasl("SCRAM-SHA-256", "node", "of-node"), "authority", "does not let 'node' in by SCRAM"),
        (NODE, "stranger", "cannot be reached"),
        (NODE, "", "hung up"),
    ],
    ids=["wrong password", "not by SCRAM", "not trusted", "plain"],
)
def test_who_is_not_let_in_is_told_why(tmp_path: Path, sasl: Sasl, trusted: str, said: str) -> None:
    async def test() -> None:
        async with running(tmp_path / "data", **settings(tmp_path)) as rig:
            context = client_context(authority(trusted).pem) if trusted else None
            peers = peers_with(sasl, context)
            with pytest.raises(PeerUnreachable, match=said) as raised:
                await peers.connection(address_of(rig), Channel.QUORUM)
            assert sasl.password not in str(raised.value)
            peers.close()

    run(test)


def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        texts = settings(tmp_path, "node.example")
        async with running(tmp_path / "data", **texts) as rig:
            peers = peers_with(NODE, client_context(authority().pem))
            with pytest.raises(PeerUnreachable, match="cannot be reached"):
                await peers.connection(address_of(rig), Channel.QUORUM)
            peers.close()

    run(test)
