"""The settings of a Kafka client by name: which there are, what becomes of each, and the connection
that they ask for.

Duty: the tables of what every connection follows, takes without effect and refuses; names of
librdkafka become Java's. A `Vocabulary` is these tables together with those of one kind of client
(`spark/client_settings.py`, `kafka/librdkafka.py`) and checks names by them: one that is in no
table is an error with the nearest one, since a misspelt setting that is ignored costs somebody a
day.

Invariant: the value of a setting is in a message only where it cannot be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.kafka.client import Client, parse_addresses
from penstock.kafka.errors import SettingError
from penstock.kafka.security import security_of
from penstock.kafka.spelling import PLAIN_SPELLING, Spelling

BOOTSTRAP: Final = "bootstrap.servers"
NUMBER_MAX: Final = 2**31 - 1

FOLLOWED: Final[dict[str, str]] = {
    BOOTSTRAP: "HOST:PORT of some brokers, separated by commas; must be given",
    "client.id": "the name that brokers write into their logs and metrics",
    "request.timeout.ms": "how long an answer may take (30000)",
    "socket.connection.setup.timeout.ms": "how long connecting may take (10000)",
    "connections.max.idle.ms": "how long an idle connection is kept (540000)",
    "receive.buffer.bytes": "size of a socket's receive buffer; -1 (the default) is the kernel's",
    "send.buffer.bytes": "size of a socket's send buffer; -1 (the default) is the kernel's",
    "security.protocol": "PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl.jaas.config": "a user's name and password, as PlainLoginModule or ScramLoginModule",
    "sasl.username": "the name, where there is no sasl.jaas.config",
    "sasl.password": "the password, where there is no sasl.jaas.config",
    "ssl.truststore.type": "must be PEM where there is an ssl.truststore.location",
    "ssl.truststore.location": "file of the certificates that are trusted; without it and the"
    " next three, those that the machine trusts",
    "ssl.truststore.certificates": "the same certificates in the setting itself",
    "ssl.ca.location": "as ssl.truststore.location, by librdkafka's name",
    "ssl.ca.pem": "as ssl.truststore.certificates, by librdkafka's name",
    "ssl.keystore.type": "must be PEM where there is an ssl.keystore.location",
    "ssl.keystore.location": "file of the client's key and certificates",
    "ssl.keystore.certificate.chain": "the client's certificates in the setting itself",
    "ssl.keystore.key": "the client's key in the setting itself",
    "ssl.certificate.location": "file of the client's certificates, by librdkafka's name",
    "ssl.certificate.pem": "as ssl.keystore.certificate.chain, by librdkafka's name",
    "ssl.key.location": "file of the client's key, by librdkafka's name",
    "ssl.key.pem": "as ssl.keystore.key, by librdkafka's name",
    "ssl.key.password": "the password of the client's key, if it is encrypted",
    "ssl.endpoint.identification.algorithm": "https (the default): the broker's name is in its"
    " certificate; none or empty: it need not be",
    "enable.ssl.certificate.verification": "false trusts any certificate",
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3 or both",
    "ssl.cipher.suites": "ciphers of TLSv1.2, by OpenSSL's names",
}

UNUSED: Final[dict[str, str]] = {
    "ssl.protocol": "ssl.enabled.protocols says it",
    "ssl.truststore.password": "PEM has none",
    "ssl.keystore.password": "PEM has none; ssl.key.password is the key's",
}

_OWN_CODE: Final = "classes of Java cannot be run here"
REFUSED: Final[dict[str, str]] = {
    "config.providers": "give the values themselves, from the environment or a file",
    "security.providers": _OWN_CODE,
    "sasl.client.callback.handler.class": _OWN_CODE,
    "sasl.login.callback.handler.class": _OWN_CODE,
    "sasl.login.class": _OWN_CODE,
    "ssl.engine.factory.class": _OWN_CODE,
    "ssl.crl.location": "revoked certificates are not looked up",
}
REFUSED_FAMILIES: Final[dict[str, str]] = {
    "sasl.kerberos.": "Kerberos cannot be had here",
    "sasl.oauthbearer.": "OAuth cannot be had here",
}

ALIASES: Final[dict[str, str]] = {
    "metadata.broker.list": BOOTSTRAP,
    "sasl.mechanisms": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
}
"""librdkafka's names for what has another one in Java."""


class Settings:
    """Values by Java's names, read by their rules; `spelling` is for messages."""

    def __init__(self, values: Mapping[str, str], spelling: Spelling = PLAIN_SPELLING) -> None:
        self.values = dict(values)
        self.spelling = spelling

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number, of milliseconds or bytes as the name says."""
        text = self.values.get(name, str(default)).strip()
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not least <= int(text) <= NUMBER_MAX:
            unit = "milliseconds" if name.endswith(".ms") else "bytes"
            raise SettingError(
                f"{self.spelling.full(name)} must be {unit}, a whole number from {least}, not"
                f" {text!r}"
            )
        return int(text)

    def seconds(self, name: str, default_s: float) -> float:
        return self.number(name, int(default_s * 1000)) / 1000


@dataclass(frozen=True)
class Vocabulary:
    """The settings that one kind of client knows, above those of every connection."""

    spelling: Spelling
    followed: Collection[str]
    unused: Mapping[str, str]
    refused: Mapping[str, str]
    page: str
    """Where users read about them."""

    def checked(self, given: Mapping[str, str]) -> Settings:
        """The settings by Java's names; one that is unknown or refused is an error."""
        found: dict[str, str] = {}
        given_as: dict[str, str] = {}
        for name, value in given.items():
            self.check_name(name)
            true_name = ALIASES.get(name, name)
            other = given_as.setdefault(true_name, name)
            if found.setdefault(true_name, value) != value:
                raise SettingError(
                    f"{self.spelling.full(other)} and {self.spelling.name(name)} are two names"
                    " for one setting, and have different values: give one of them"
                )
        return Settings(found, self.spelling)

    def check_name(self, name: str) -> None:
        known = [*FOLLOWED, *UNUSED, *ALIASES, *self.followed, *self.unused]
        if name in known:
            return
        if (instead := self._instead(name)) is not None:
            raise SettingError(f"{self.spelling.full(name)} is not supported: {instead}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {self.spelling.name(near[0])}?)" if near else ""
        raise SettingError(
            f"unknown {self.spelling.full(name)}{hint}; the settings of Kafka's clients that are"
            f" known here are in {self.page}"
        )

    def _instead(self, name: str) -> str | None:
        for family, why in REFUSED_FAMILIES.items():
            if name.startswith(family):
                return f"{why}; {self.spelling.elsewhere}"
        return self.refused.get(name, REFUSED.get(name))

    def no_effect(self, name: str) -> str | None:
        """Why a known setting has no effect, None where it has."""
        true_name = ALIASES.get(name, name)
        return self.unused.get(true_name, UNUSED.get(true_name))


def bootstrap_of(settings: Settings) -> str:
    """The brokers to ask first, which must be given."""
    text, spelling = settings.get(BOOTSTRAP), settings.spelling
    if BOOTSTRAP not in settings.values:
        raise SettingError(f"{spelling.full(BOOTSTRAP)} is missing: say HOST:PORT of the cluster")
    try:
        parse_addresses(text)
    except ValueError as e:
        raise SettingError(
            f"{spelling.full(BOOTSTRAP)} must be HOST:PORT, or several separated by commas: {e}"
        ) from None
    return text


def client_of(settings: Settings, ours: Client | None = None) -> Client:
    """How to connect, from settings that are checked; `ours` has what is not given."""
    ours = ours or Client()
    return Client(
        client_id=settings.get("client.id", ours.client_id),
        security=security_of(settings.values, settings.spelling),
        connect_s=settings.seconds("socket.connection.setup.timeout.ms", ours.connect_s),
        answer_s=settings.seconds("request.timeout.ms", ours.answer_s),
        idle_s=settings.seconds("connections.max.idle.ms", ours.idle_s),
        receive_buffer_bytes=settings.number(
            "receive.buffer.bytes", ours.receive_buffer_bytes, least=-1
        ),
        send_buffer_bytes=settings.number("send.buffer.bytes", ours.send_buffer_bytes, least=-1),
    )
