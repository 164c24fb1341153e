"""The HTTP address by TLS: with curl, with a Prometheus that scrapes it, and when its certificate
is replaced.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import prometheus as prom
from support.certificates import CertificateFiles
from support.node import NodeProcess
from support.secured import KEY_PASSWORD
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

RELOAD_MS = 100


class HttpsNode(NodeProcess):
    """`/metrics` only for those whom its authority knows; everything else is plain."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.files = CertificateFiles(root / "certificates", KEY_PASSWORD)
        self.certificate = root / "http.pem"
        shutil.copy(self.files.broker, self.certificate)
        self.settings |= {
            "penstock.ssl.reload.interval.ms": str(RELOAD_MS),
            "listener.name.http.ssl.keystore.type": "PEM",
            "listener.name.http.ssl.keystore.location": str(self.certificate),
            "listener.name.http.ssl.truststore.type": "PEM",
            "listener.name.http.ssl.truststore.location": str(self.files.authority),
            "listener.name.http.ssl.client.auth": "required",
        }

    def command(self) -> list[str]:
        argv = super().command()
        place = argv.index("--http") + 1
        argv[place] = "https://" + argv[place]
        return argv

    def url(self, path: str) -> str:
        return f"https://{self.http_host}:{self.http_port}{path}"

    def curl(self, path: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = ["curl", "-sS", "--max-time", "20", "--cacert", str(self.files.authority)]
        return subprocess.run(
            [*command, *options, self.url(path)], capture_output=True, text=True, check=False
        )

    @property
    def shown(self) -> tuple[str, str]:
        """The option by which curl shows a certificate of the node's authority."""
        return "--cert", str(self.files.open_client)

    def serial(self) -> str:
        """Of the certificate that the address shows."""
        context = ssl.create_default_context(cafile=str(self.files.authority))
        context.load_cert_chain(self.files.open_client)
        with (
            socket.create_connection((self.http_host, self.http_port)) as plain,
            context.wrap_socket(plain, server_hostname=self.http_host) as encrypted,
        ):
            found: Any = encrypted.getpeercert()
            return str(found["serialNumber"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpsNode]:
    with HttpsNode(tmp_path_factory.mktemp("https")) as node:
        yield node


def test_the_ready_line_says_that_it_is_encrypted(node: HttpsNode) -> None:
    assert node.ready_line()["http"] == node.url("")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no `curl` on the PATH")
def test_curl_with_and_without_a_certificate(node: HttpsNode) -> None:
    known = node.curl("/readyz", *node.shown)
    assert (known.returncode, known.stdout) == (0, '{"status": "ok", "reason": "serving"}\n')
    text = node.curl("/metrics", *node.shown).stdout
    assert 'penstock_certificate_not_after_seconds{listener="HTTP"}' in text
    assert node.curl("/readyz").returncode != 0, "without a certificate"
    stranger = str(node.files.of_stranger())
    assert node.curl("/readyz", "--cert", stranger).returncode != 0
    text = node.curl("/metrics", *node.shown).stdout
    [line] = [line for line in text.splitlines() if "handshakes_failed_total{" in line]
    assert line.startswith('penstock_tls_handshakes_failed_total{listener="HTTP"}')
    assert float(line.split()[-1]) >= 2


def test_plain_http_gets_no_answer(node: HttpsNode) -> None:
    with socket.create_connection((node.http_host, node.http_port), timeout=10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            said = plain.recv(1000)
        except ConnectionError:
            said = b""
        assert b"HTTP" not in said


def test_a_new_certificate_is_shown_without_a_restart(node: HttpsNode) -> None:
    before = node.serial()
    new = node.certificate.with_suffix(".new")
    shutil.copy(node.files.signed("broker"), new)
    os.replace(new, node.certificate)
    eventually(lambda: node.serial() != before)


@pytest.mark.skipif(prom.missing() is not None, reason=str(prom.missing()))
def test_prometheus_scrapes_it(node: HttpsNode, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text("groups: []\n")
    identity = str(node.files.open_client)
    way = {
        "scheme": "https",
        "tls_config": {
            "ca_file": str(node.files.authority),
            "cert_file": identity,
            "key_file": identity,
        },
    }
    with prom.prometheus(tmp_path, f"{node.http_host}:{node.http_port}", rules, way) as server:
        eventually(lambda: server.query(f'up{{job="{prom.JOB}"}} == 1'))
        assert server.query("penstock_build_info")
