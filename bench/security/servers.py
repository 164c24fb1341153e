"""Servers with TLS: a plain listener, by which topics are made, and an encrypted one for the load.

Certificates are made here, in memory: an authority and, for each server, a key on the curve P-256.
Version and cipher are the same for all (`bench.peers.tls`), and the load fails if another one is
agreed on.
"""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path
from typing import ClassVar

from bench.peers.kafka_server import KafkaServer
from bench.peers.penstock_server import PenstockServer
from bench.peers.server import Server
from bench.peers.tls import CIPHER, TLS_VERSION, TlsSocket, context
from tests.support.certificates import Authority
from tests.support.process import free_port

TLS_NAME = f"{TLS_VERSION}, {CIPHER}, a certificate with a key on P-256"
PLAIN = "Penstock without TLS"
KAFKA_PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"


@cache
def authority() -> Authority:
    return Authority()


def certificate_settings(folder: Path, host: str) -> dict[str, str]:
    """Of a server with a new certificate, which is written into `folder`."""
    certificate, trusted = folder / "server.pem", folder / "ca.pem"
    certificate.touch(0o600)
    certificate.write_text(authority().issue("server", (host,)))
    trusted.write_text(authority().pem)
    return {
        "ssl.enabled.protocols": TLS_VERSION,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }


class _Tls(Server):
    """What a server with a second, encrypted listener adds."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        super().__init__(folder, fsync=fsync)
        self._tls_port = free_port()

    @property
    def load_port(self) -> int:
        return self._tls_port

    def secured(self, sock: socket.socket) -> socket.socket:
        return TlsSocket(sock, context(authority().pem), self.host)

    def plain_and_tls(self) -> str:
        return f"PLAINTEXT://{self.host}:{self.port},SSL://{self.host}:{self._tls_port}"


class PenstockTls(_Tls, PenstockServer):
    """`penstock serve` with both listeners."""

    def settings(self) -> dict[str, str]:
        certificate = certificate_settings(self.folder, self.host)
        return super().settings() | certificate | {"listeners": self.plain_and_tls()}


class KafkaTls(_Tls, KafkaServer):
    """Apache Kafka with both listeners."""

    def settings(self) -> dict[str, str]:
        settings = super().settings()
        controller = settings["listeners"].split(",")[-1]
        settings |= certificate_settings(self.folder, self.host)
        return settings | {
            "ssl.cipher.suites": CIPHER,
            "listeners": f"{self.plain_and_tls()},{controller}",
            "advertised.listeners": self.plain_and_tls(),
            "listener.security.protocol.map": KAFKA_PROTOCOLS,
        }


class PenstockPlain(PenstockServer):
    """`penstock serve` as it is by default, for what TLS costs."""

    name: ClassVar[str] = PLAIN
