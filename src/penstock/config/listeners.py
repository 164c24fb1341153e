"""Addresses in settings: `NAME://host:port` as Kafka writes listeners, and plain `host:port`."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from penstock.config.table import ConfigError

PORT_MAX = 65_535
PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SECURITY_PROTOCOLS = (PLAINTEXT, SSL, "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their numbers in the protocol."""
TLS_PROTOCOLS = (SSL, "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    """A named address; an empty host means every interface, port 0 means any free port."""

    name: str
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        """Whether the host is an address that stands for all of them, 0.0.0.0 or ::."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def is_at(self, host: str, port: int) -> bool:
        """Whether who connects to `host` and `port` on this machine surely comes here."""
        if port != self.port or port == 0:
            return False
        here = not self.host or self.is_wildcard or _is_loopback(self.host)
        return host == self.host or (here and _is_loopback(host))

    def __str__(self) -> str:
        return f"{self.name}://{address_text(self.host, self.port)}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, setting: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port`; the error names `setting`."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    digits = port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX))
    if not colon or not digits or int(port) > PORT_MAX:
        raise ConfigError(f"{setting} cannot be {text!r}: it must be HOST:PORT, as 127.0.0.1:9092")
    return host, int(port)


def parse_listener(text: str, setting: str) -> Listener:
    name, separator, address = text.strip().partition("://")
    if not separator or not name:
        raise ConfigError(
            f"{setting} cannot be {text!r}: it must be NAME://HOST:PORT, as "
            "PLAINTEXT://127.0.0.1:9092"
        )
    host, port = parse_address(address, setting)
    return Listener(name.upper(), host, port)


def parse_listeners(texts: tuple[str, ...], setting: str) -> tuple[Listener, ...]:
    """The listeners of one setting; no name and no port (0 apart) may be there twice."""
    listeners = tuple(parse_listener(text, setting) for text in texts)
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError(
            f"{setting} cannot be {','.join(texts)!r}: each listener needs its own name"
        )
    return listeners


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: the protocol of each named listener."""
    protocols = {}
    for item in text.split(",") if text.strip() else ():
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map cannot be {text!r}: it must be a list of "
                f"NAME:PROTOCOL, each protocol one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        if name in protocols:
            raise ConfigError(f"listener.security.protocol.map names {name} twice")
        protocols[name] = protocol
    return protocols


def parse_per_ip(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: a number of connections for each address."""
    overrides = {}
    for item in text.split(",") if text.strip() else ():
        address, _, number = item.strip().rpartition(":")
        try:
            overrides[str(ip_address(address.strip("[]")))] = int(number)
        except ValueError:
            raise ConfigError(
                f"max.connections.per.ip.overrides cannot be {text!r}: it must be a list of "
                "ADDRESS:NUMBER, as 127.0.0.1:100"
            ) from None
    return overrides
