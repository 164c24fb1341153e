"""The certificates of a local cluster: an authority that this folder alone knows, and what it
signed for each node.

Files, all with mode 0600: `ca.pem`, which clients trust; `ca.key`, which signs nodes that come
later; `node-i.pem` with the key and the certificate of node i. What is there is kept.
"""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.base.private_files import write_private
from penstock.cli.errors import usage_error

VALID_DAYS: Final = 3650
"""A local cluster is not to stop working one day; its authority is trusted by nobody else."""
CLOCK_DAYS: Final = 1
"""Valid from before now, for whoever has a clock that is behind."""
HOSTS: Final = "localhost", "127.0.0.1"


class Authority:
    """Who signs the certificates in `folder`, which is there."""

    def __init__(self, folder: Path) -> None:
        self.certificate_path = folder / "ca.pem"
        self._folder = folder
        self._key_path = folder / "ca.key"

    def node_path(self, number: int) -> Path:
        return self._folder / f"node-{number}.pem"

    def provide(self, numbers: list[int]) -> None:
        """Makes what is missing of the authority and of these nodes' certificates."""
        is_new = not self.certificate_path.exists()
        if is_new:
            self._make()
        missing = [i for i in numbers if is_new or not self.node_path(i).exists()]
        if missing:
            key, certificate = self._load()
            for number in missing:
                write_private(self.node_path(number), _node_pem(number, key, certificate))

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("penstock dev")
        builder = _builder(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        certificate = builder.sign(key, hashes.SHA256())
        write_private(self._key_path, _key_pem(key))
        write_private(self.certificate_path, _certificate_pem(certificate))

    def _load(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        try:
            key = serialization.load_pem_private_key(self._key_path.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(self.certificate_path.read_bytes())
        except (OSError, ValueError, TypeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is damaged or has a password"
            raise usage_error(
                f"a node needs a certificate, and {self._key_path} cannot sign it: {reason}; bring"
                " it back, or choose another --data-dir"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise usage_error(
                f"{self._key_path} was not made by `penstock dev`: bring back its own"
            )
        return key, certificate


def _node_pem(number: int, signer: ec.EllipticCurvePrivateKey, authority: x509.Certificate) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(f"node-{number}"), authority.subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_usage(signs_certificates=False), True)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
    name, address = HOSTS
    hosts = [x509.DNSName(name), x509.IPAddress(ip_address(address))]
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), False)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = builder.add_extension(signed_by, False).sign(signer, hashes.SHA256())
    return _key_pem(key) + _certificate_pem(certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=CLOCK_DAYS))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, plain).decode()


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
