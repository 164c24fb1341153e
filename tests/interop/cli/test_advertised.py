"""A node that listens on every interface tells its clients an address that they can use."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.messages.metadata import MetadataRequest
from support.node import NodeProcess
from support.raw import RawClient

pytestmark = pytest.mark.penstock_only
Run = Callable[..., Any]
METADATA_VERSION = 12


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_every_interface_is_no_address_to_advertise(run_at: Run, tmp_path: Path, host: str) -> None:
    data = ("--data-dir", str(tmp_path), "--http", "")
    refused = run_at("", "serve", *data, "--listen", f"{host}:9092")
    assert refused.code == 2
    assert refused.sentence == (
        f"listeners has PLAINTEXT://{host}:9092, which is no address that clients can connect to:"
        " set advertised.listeners to PLAINTEXT://HOST:9092 with the name or address by which they"
        " reach this machine, or leave the host out in listeners (PLAINTEXT://:9092) to have this"
        " machine's own name advertised"
    )
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_without_a_host_the_name_of_the_machine_is_advertised(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    node.settings["listeners"] = f"PLAINTEXT://:{node.port}"
    with node, RawClient(node.host, node.port) as client:
        [broker] = client.call(MetadataRequest(topics=[]), METADATA_VERSION).brokers
    assert broker.port == node.port
    assert broker.host not in ("", "0.0.0.0", "::")
    assert socket.getaddrinfo(broker.host, broker.port), "it can be looked up"
