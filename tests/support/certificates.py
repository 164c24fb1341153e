"""Authorities and certificates for tests, made in this process."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
HOST = "127.0.0.1"


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


class Authority:
    """`pem` is what others trust."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.pem = self._signed(self._name, self._key, True, (), 60 * DAY)

    def issue(
        self,
        name: str,
        hosts: tuple[str, ...] = (HOST,),
        lasts: timedelta = 60 * DAY,
        password: str | None = None,
        begins: timedelta = -3 * DAY,
    ) -> str:
        """The PEM of a new key and its certificate; it has ended if `lasts` is below 0."""
        key = ec.generate_private_key(ec.SECP256R1())
        shown = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode()),
        )
        return shown.decode() + self._signed(_name(name), key, False, hosts, lasts, begins)

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        authority: bool,
        hosts: tuple[str, ...],
        lasts: timedelta,
        begins: timedelta = -3 * DAY,
    ) -> str:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


class CertificateFiles:
    """PEM files in a folder, signed by one authority."""

    def __init__(self, folder: Path, key_password: str) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._signer = Authority()
        self.authority = self._write("ca", self._signer.pem)
        self.broker = self.signed("broker")
        self.client = self.signed("client", password=key_password)
        self.open_client = self.signed("open-client")

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / f"{name}.pem"
        path.write_text(text)
        return path

    def signed(
        self,
        name: str,
        *,
        lasts: timedelta = 60 * DAY,
        password: str | None = None,
        begins: timedelta = -3 * DAY,
    ) -> Path:
        made = self._signer.issue(name, lasts=lasts, password=password, begins=begins)
        return self._write(name, made)

    def of_stranger(self) -> Path:
        """A certificate that somebody else has signed."""
        return self._write("stranger", Authority("stranger").issue("client"))


_authority = cache(Authority)


def authority(name: str = "authority") -> Authority:
    """The same one for the same name."""
    return _authority(name)


def client_context(trusted: str, identity: Path | None = None) -> ssl.SSLContext:
    """Of a client that trusts one authority."""
    context = ssl.create_default_context(cadata=trusted)
    if identity is not None:
        context.load_cert_chain(identity)
    return context
