"""When the certificates end that nodes show to clients: one handshake with each node.

Only the listener that is advertised to this client is seen, and only if it speaks TLS. What a node
shows must be trusted for the handshake to succeed: a certificate that has ended is told as a node
that cannot be asked, with the reason of TLS.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple

from cryptography import x509

from penstock.cli.cluster.asking import ASKED_AT_ONCE_MAX, Brokers
from penstock.cli.cluster.state import Node
from penstock.kafka.client import Address


class Shown(NamedTuple):
    """The certificate that a node shows to clients."""

    subject: str
    ends: datetime


def shown_certificates(brokers: Brokers, nodes: Iterable[Node]) -> dict[int, Shown]:
    """By node, as far as nodes answer and speak TLS."""
    nodes = list(nodes)
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        found = pool.map(lambda node: _shown(brokers, node.address), nodes)
    return {node.id: shown for node, shown in zip(nodes, found, strict=True) if shown}


def _shown(brokers: Brokers, address: Address) -> Shown | None:
    try:
        certificate = brokers.certificate_at(address)
    except OSError:
        return None  # The rest of the report has what is wrong with it.
    if certificate is None:
        return None
    read = x509.load_der_x509_certificate(certificate)
    return Shown(read.subject.rfc4514_string(), read.not_valid_after_utc)
