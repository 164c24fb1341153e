"""Apache Kafka with a listener for each kind of security, and the certificates that it takes.

Certificates are made by openssl when the tests run: an authority, a broker that is called
127.0.0.1 and nothing else, a client with an encrypted key, and an authority that signed nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from .helpers import admin
from .process import BrokerProcess, free_port
from .reference import KafkaProcess, missing
from .waiting import CALL_SECONDS_MAX

LISTENERS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
USER = 'ann=a,"b"'
"""With what SCRAM and JAAS have to write in another way."""
PASSWORD = 'p,=s"s\\word'
PLAIN_USER, PLAIN_PASSWORD = "writer", "plain-password-of-writer"
KEY_PASSWORD = "key-password"
SESSION_MS = 4_000
SCRAM_ROUNDS = 4096
_PACKAGE = "org.apache.kafka.common.security"
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def cannot_run() -> str | None:
    """Why there can be no secured Kafka here, or None."""
    return missing() or (None if shutil.which("openssl") else "no `openssl` on the PATH")


class Certificates:
    """PEM files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.authority = self._authority("ca")
        self.stranger = self._authority("stranger")
        self.broker = self._signed("broker", "IP:127.0.0.1", None)
        self.client = self._signed("client", "DNS:client", KEY_PASSWORD)
        self.open_client = self._signed("open-client", "DNS:client", None)

    def _openssl(self, *args: str) -> None:
        done = subprocess.run(
            ["openssl", *args], cwd=self._folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"openssl {' '.join(args)}: {done.stderr}"

    def _authority(self, name: str) -> Path:
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        self._openssl("req", "-x509", *_EC, "-nodes", *files, "-subj", f"/CN={name}", "-days", "2")
        return self._folder / f"{name}.pem"

    def _signed(self, name: str, called: str, password: str | None) -> Path:
        """A file with a key and its certificate; each also lies alone, in .key and .crt."""
        secret = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        self._openssl("req", *_EC, *secret, *files, "-subj", f"/CN={name}")
        (self._folder / f"{name}.ext").write_text(f"subjectAltName={called}\n")
        signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        files = ["-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", f"{name}.ext"]
        self._openssl("x509", "-req", *files, *signer)
        both = self._folder / f"{name}.pem"
        parts = [(self._folder / f"{name}{end}").read_text() for end in (".key", ".crt")]
        both.write_text("".join(parts))
        return both


class SecuredKafka(KafkaProcess):
    """`bootstrap` is its plain listener, for making topics; `at` has the others."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, {"auto.create.topics.enable": "false"})
        self.certificates = Certificates(root / "certificates")
        self.ports = {name: free_port() for name in LISTENERS}
        self.settings |= self._security()

    def at(self, listener: str, host: str = "127.0.0.1") -> str:
        return f"{host}:{self.ports[listener]}"

    def _security(self) -> dict[str, str]:
        clients = ["PLAINTEXT://" + self.bootstrap]
        clients += [f"{name}://{self.at(name)}" for name in LISTENERS]
        names = ["PLAINTEXT", *LISTENERS]
        found = {
            "listeners": ",".join([*clients, f"CONTROLLER://{self.host}:{self.controller_port}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in names)]
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(SESSION_MS),
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            logins = f"listener.name.{listener}."
            found[f"{logins}plain.sasl.jaas.config"] = (
                f'{_PACKAGE}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";'
            )
            for scram in ("scram-sha-256", "scram-sha-512"):
                found[f"{logins}{scram}.sasl.jaas.config"] = (
                    f"{_PACKAGE}.scram.ScramLoginModule required;"
                )
        return found

    def add_user(self, name: str = USER, password: str = PASSWORD) -> None:
        add_user(self, name, password)


def add_user(broker: BrokerProcess, name: str = USER, password: str = PASSWORD) -> None:
    """Makes a user known to SCRAM."""
    wanted = [
        UserScramCredentialUpsertion(
            name, ScramCredentialInfo(kind, SCRAM_ROUNDS), password.encode()
        )
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for one in wanted:
        for future in admin(broker).alter_user_scram_credentials([one]).values():
            future.result(CALL_SECONDS_MAX)


def jaas(kind: str, username: str, password: str) -> str:
    """A login as Java's clients write it; `kind` is plain or scram."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    module = f"{_PACKAGE}.{kind}.{kind.capitalize()}LoginModule"
    return f"{module} required username={quoted(username)} password={quoted(password)};"


def scram_tls(broker: SecuredKafka) -> dict[str, str]:
    """A user by SCRAM over TLS, in Java's words."""
    return {
        "bootstrap.servers": broker.at("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas("scram", USER, PASSWORD),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificates.authority),
    }


def plain_tls(broker: SecuredKafka) -> dict[str, str]:
    """A user by PLAIN over TLS, in librdkafka's words."""
    return {
        "bootstrap.servers": broker.at("SASL_SSL"),
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": PLAIN_USER,
        "sasl.password": PLAIN_PASSWORD,
        "ssl.ca.location": str(broker.certificates.authority),
    }


def certificate_in_a_file(broker: SecuredKafka) -> dict[str, str]:
    """A client's certificate, in Java's words."""
    return {
        "bootstrap.servers": broker.at("SSL"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificates.authority),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.certificates.client),
        "ssl.key.password": KEY_PASSWORD,
    }
