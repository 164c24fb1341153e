"""Who connects, how, and where to: plain values, which import nothing of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.kafka.security import PLAIN_SECURITY, Security

CLIENT_ID: Final = "penstock"
Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class Client:
    """How connections are made; those of equal clients may be used in place of each other."""

    client_id: str = CLIENT_ID
    security: Security = PLAIN_SECURITY
    connect_s: float = 10.0
    answer_s: float = 30.0
    idle_s: float = 540.0
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    """-1 leaves a buffer's size to the kernel."""


def place(address: Address) -> str:
    """An address as settings write it."""
    return f"{address[0]}:{address[1]}"


def failed(address: Address, error: OSError) -> str:
    """Where and why, for a sentence."""
    return f"{place(address)}: {why(error)}"


def unreachable(who: str, address: Address, said: str) -> str:
    """A clause about a broker that others can reach by an address, and we cannot."""
    return f"{who} is advertised at {place(address)}, which cannot be reached from here ({said})"


def why(error: OSError) -> str:
    """What the system or we said of a connection that failed, for a sentence."""
    return error.strerror.lower() if error.strerror else str(error)


def parse_addresses(bootstrap: str, default_port: int | None = None) -> list[Address]:
    """The hosts and ports of `bootstrap.servers`; nothing else may stand in it. Without a
    `default_port` each must have its own.
    """
    found = []
    for part in filter(None, (p.strip() for p in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        if default_port is not None and (not colon or part.endswith("]")):
            host, port = part, str(default_port)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not an address")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no broker is named")
    return found
