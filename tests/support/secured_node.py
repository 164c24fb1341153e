"""A Penstock node with a listener for each kind of security, and ways in for every kind of client.

`at`, `certificates` and `add_user` are those of `secured.SecuredKafka`: what a client is told for
the one is right for the other. Settings of clients are in librdkafka's words; `for_java` and
`for_python` turn them into Java's and into those of kafka-python and aiokafka.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Any

from unit.auth.tokens import RSA, jwks, signed

from .certificates import CertificateFiles
from .node import NodeProcess
from .process import free_port
from .secured import KEY_PASSWORD, PASSWORD, PLAIN_PASSWORD, PLAIN_USER, USER, add_user, jaas

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "AGAIN": "SASL_PLAINTEXT",
}
"""AGAIN has sessions of `SESSION_MS`."""
SESSION_MS = 1_500
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOKEN_SECONDS = 3600

Settings = dict[str, str]


def token(**claims: Any) -> str:
    """One that the node accepts, unless claims say otherwise."""
    now_s = int(time.time())
    return signed({"sub": "ann", "iat": now_s - 5, "exp": now_s + TOKEN_SECONDS} | claims)


class SecuredNode(NodeProcess):
    """`bootstrap` is its plain listener."""

    def __init__(self, root: Path, settings: Settings | None = None) -> None:
        super().__init__(root, settings)
        self.certificates = CertificateFiles(root / "certificates", KEY_PASSWORD)
        self.ports = {name: free_port() for name in LISTENERS}
        self.keys = root / "keys.json"
        self.keys.write_bytes(jwks(RSA))
        self.settings |= self._security()

    def at(self, listener: str, host: str = "127.0.0.1") -> str:
        return f"{host}:{self.ports[listener]}"

    def command(self) -> list[str]:
        argv = super().command()
        place = argv.index("--listen")
        return argv[:place] + argv[place + 2 :]

    def _security(self) -> Settings:
        named = [f"{name}://{self.at(name)}" for name in LISTENERS]
        kinds = [f"{name}:{kind}" for name, kind in LISTENERS.items()]
        found = {
            "listeners": ",".join([f"PLAINTEXT://{self.bootstrap}", *named]),
            "listener.security.protocol.map": ",".join(["PLAINTEXT:PLAINTEXT", *kinds]),
            "inter.broker.listener.name": "PLAINTEXT",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "listener.name.again.plain.connections.max.reauth.ms": str(SESSION_MS),
            "listener.name.again.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
        }
        for listener in ("sasl_ssl", "sasl_plaintext", "again"):
            found[f"listener.name.{listener}.plain.sasl.jaas.config"] = (
                f'{PLAIN_MODULE} required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
            )
        return found

    def add_user(self, name: str = USER, password: str = PASSWORD) -> None:
        add_user(self, name, password)

    def way(self, listener: str, mechanism: str = "") -> Settings:
        """What a client needs to get in, in librdkafka's words."""
        protocol = LISTENERS[listener]
        found = {"bootstrap.servers": self.at(listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.certificates.authority)
        if listener == "MTLS":
            client = str(self.certificates.open_client)
            found |= {"ssl.certificate.location": client, "ssl.key.location": client}
        if mechanism:
            found["sasl.mechanism"] = mechanism
        if mechanism == "PLAIN":
            found |= {"sasl.username": PLAIN_USER, "sasl.password": PLAIN_PASSWORD}
        elif mechanism.startswith("SCRAM"):
            found |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return found


def for_java(way: Settings, token_file: Path) -> Settings:
    """In Java's words; tokens come from a file."""
    kept = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    found = {name: way[name] for name in kept if name in way}
    if "ssl.ca.location" in way:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": way["ssl.ca.location"]}
    if "ssl.certificate.location" in way:
        identity = way["ssl.certificate.location"]
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": identity}
    if "sasl.username" in way:
        kind = "plain" if way["sasl.mechanism"] == "PLAIN" else "scram"
        found["sasl.jaas.config"] = jaas(kind, way["sasl.username"], way["sasl.password"])
    elif "sasl.mechanism" in way:
        found |= {
            "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token_file.as_uri(),
        }
    return found


def for_python(way: Settings) -> dict[str, Any]:
    """For kafka-python and aiokafka, but for what gives tokens."""
    found: dict[str, Any] = {
        "bootstrap_servers": way["bootstrap.servers"],
        "security_protocol": way["security.protocol"],
    }
    if "ssl.ca.location" in way:
        context = ssl.create_default_context(cafile=way["ssl.ca.location"])
        if "ssl.certificate.location" in way:
            context.load_cert_chain(way["ssl.certificate.location"])
        found["ssl_context"] = context
    if "sasl.mechanism" in way:
        found["sasl_mechanism"] = way["sasl.mechanism"]
    if "sasl.username" in way:
        found["sasl_plain_username"] = way["sasl.username"]
        found["sasl_plain_password"] = way["sasl.password"]
    return found
