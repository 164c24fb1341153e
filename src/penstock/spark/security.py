"""Who a query is to the cluster, and how it knows the cluster: TLS and SASL from `kafka.*` options.

Duty: options of either family of names, Java's (`ssl.truststore.*`, `sasl.jaas.config`) or
librdkafka's (`ssl.ca.location`, `sasl.username`), become a `Security`, and that becomes a TLS
context and an exchange. What cannot be had (JKS and PKCS#12 stores, Kerberos, OAuth) is refused
with the way out.

Invariants: a broker's certificate and the host's name in it are verified unless an option says
otherwise. A `Security` holds what a task needs to connect and nothing more; passwords and keys are
in no `repr` and in no message.

Limits: certificates and keys are PEM. Files are read once by each Python worker, on the machine
where it runs; a changed file counts from the next worker on.
"""

from __future__ import annotations

import contextlib
import functools
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.spark.errors import ClusterError, OptionError
from penstock.spark.security_sasl import MECHANISMS, PLAIN, Sasl, parse_jaas

CONTEXTS_MAX: Final = 8
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CREDENTIALS: Final = ("sasl.jaas.config", "sasl.username", "sasl.mechanism")
_TRUST: Final = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.ca.location",
    "ssl.ca.pem",
)
_CHAIN: Final = (
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.certificate.location",
    "ssl.certificate.pem",
)
_KEY: Final = ("ssl.keystore.key", "ssl.key.location", "ssl.key.pem")
_WAYS_OUT: Final = {
    "truststore": "keytool -exportcert -rfc -alias CA -keystore {} > ca.pem",
    "keystore": "openssl pkcs12 -in {} -out client.pem (before it, for a store that is JKS:"
    " keytool -importkeystore -srckeystore {} -destkeystore client.p12 -deststoretype PKCS12)",
}


class SecurityError(ClusterError):
    """A broker refuses who we are, or is not who it should be. It will be so the next time, too."""


@dataclass(frozen=True)
class Pem:
    """Certificates or a key, in a file or in the option itself."""

    option: str
    location: str | None = None
    text: str | None = field(default=None, repr=False)

    def path(self, until: contextlib.ExitStack) -> str:
        """A file with it; one that is made for it lasts until the end of `until`."""
        if self.location is not None:
            return self.location
        made = until.enter_context(tempfile.NamedTemporaryFile("w", suffix=".pem"))  # noqa: SIM115
        made.write(_with_lines(self.text or ""))
        made.flush()
        return made.name

    def refused(self, error: Exception) -> OptionError:
        what = f" {self.location}" if self.location is not None else ""
        why = error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
        return OptionError(
            f"option kafka.{self.option}:{what} cannot be used as PEM ({why or error}); see that it"
            " is there on every machine that runs tasks, and that kafka.ssl.key.password is right"
            " if it is an encrypted key"
        )


@dataclass(frozen=True)
class Tls:
    """How a connection is encrypted, and whom it trusts; without `trust`, whom the machine does."""

    trust: Pem | None = None
    chain: Pem | None = None
    key: Pem | None = None
    key_password: str = field(default="", repr=False)
    verify: bool = True
    verify_host: bool = True
    versions: tuple[str, ...] = ()
    ciphers: str | None = None


@dataclass(frozen=True)
class Security:
    """Plain, unless it says otherwise."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        """The value of security.protocol."""
        name = "PLAINTEXT" if self.tls is None else "SSL"
        return name if self.sasl is None else f"SASL_{name}"


PLAIN_SECURITY: Final = Security()


def security_of(kafka: Mapping[str, str]) -> Security:
    """What the `kafka.*` options ask for, checked as far as it can be without files and brokers."""
    given = kafka.get("security.protocol")
    protocol = (given or "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise OptionError(
            f"option kafka.security.protocol must be one of {', '.join(PROTOCOLS)}, not {given!r}"
        )
    if given is None:
        for name in (*_CREDENTIALS, *_TRUST, *_CHAIN, *_KEY):
            if name in kafka:
                raise OptionError(
                    f"option kafka.{name} is given, but kafka.security.protocol is not: set it to"
                    " SSL, SASL_SSL or SASL_PLAINTEXT, or to PLAINTEXT to connect without security"
                )
    return Security(
        tls=_tls(kafka) if protocol.endswith("SSL") else None,
        sasl=_sasl(kafka) if protocol.startswith("SASL") else None,
    )


def _sasl(kafka: Mapping[str, str]) -> Sasl:
    mechanism = kafka.get("sasl.mechanism", "").strip().upper()
    if mechanism not in MECHANISMS:
        what = f"is {mechanism}, which cannot be had here" if mechanism else "is missing"
        raise OptionError(
            f"option kafka.sasl.mechanism {what}: give {', '.join(MECHANISMS)}, whichever the"
            " brokers have in sasl.enabled.mechanisms; for Kerberos or OAuth use Spark's own Kafka"
            ' connector, format("kafka")'
        )
    jaas, username, password = (
        kafka.get(name) for name in ("sasl.jaas.config", "sasl.username", "sasl.password")
    )
    if jaas is not None and username is not None:
        raise OptionError("give one of the options kafka.sasl.jaas.config and kafka.sasl.username")
    if jaas is not None:
        return _sasl_of_jaas(mechanism, jaas)
    for name, value in (("sasl.username", username), ("sasl.password", password)):
        if not value:
            raise OptionError(
                f"option kafka.{name} is missing: {mechanism} wants kafka.sasl.username and"
                " kafka.sasl.password, or both in kafka.sasl.jaas.config"
            )
    return Sasl(mechanism, username or "", password or "")


def _sasl_of_jaas(mechanism: str, text: str) -> Sasl:
    try:
        login = parse_jaas(text)
    except ValueError as e:
        raise OptionError(f"option kafka.sasl.jaas.config cannot be read: {e}") from None
    wanted = "PlainLoginModule" if mechanism == PLAIN else "ScramLoginModule"
    if login.module.rpartition(".")[2] != wanted:
        raise OptionError(
            f"option kafka.sasl.jaas.config does not name the login module {wanted}, which"
            f" kafka.sasl.mechanism {mechanism} wants"
        )
    if login.options.get("tokenauth", "").lower() == "true":
        raise OptionError(
            "option kafka.sasl.jaas.config asks for a delegation token (tokenauth), which cannot"
            " be had here: give the name and password of a user"
        )
    for name in ("username", "password"):
        if not login.options.get(name):
            raise OptionError(f'option kafka.sasl.jaas.config has no {name}="..."')
    return Sasl(mechanism, login.options["username"], login.options["password"])


def _tls(kafka: Mapping[str, str]) -> Tls:
    for store in _WAYS_OUT:
        _check_store(kafka, store)
    chain, key = _one_pem(kafka, _CHAIN), _one_pem(kafka, _KEY)
    if chain is not None and chain.option == "ssl.keystore.location" and key is None:
        key = chain
    if (chain is None) != (key is None):
        there = chain or key
        assert there is not None
        raise OptionError(
            f"option kafka.{there.option} is given alone: a client's certificate and its key go"
            f" together; the other is one of {_names(_KEY if key is None else _CHAIN)}"
        )
    algorithm = kafka.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "none", ""):
        raise OptionError(
            "option kafka.ssl.endpoint.identification.algorithm must be https, or none or empty to"
            f" trust any host that has a trusted certificate, not {algorithm!r}"
        )
    verification = kafka.get("enable.ssl.certificate.verification", "true").strip().lower()
    if verification not in ("true", "false"):
        raise OptionError("option kafka.enable.ssl.certificate.verification must be true or false")
    return Tls(
        trust=_one_pem(kafka, _TRUST),
        chain=chain,
        key=key,
        key_password=kafka.get("ssl.key.password", ""),
        verify=verification == "true",
        verify_host=algorithm == "https",
        versions=_versions(kafka.get("ssl.enabled.protocols", "")),
        ciphers=kafka.get("ssl.cipher.suites"),
    )


def _check_store(kafka: Mapping[str, str], store: str) -> None:
    """Java takes a store for JKS unless it is told otherwise."""
    location = kafka.get(f"ssl.{store}.location")
    kind = kafka.get(f"ssl.{store}.type", "JKS").strip().upper()
    if location is None or kind == "PEM":
        return
    raise OptionError(
        f"option kafka.ssl.{store}.location is a store of type {kind}"
        f" (kafka.ssl.{store}.type), which cannot be read here: write it as PEM with"
        f" {_WAYS_OUT[store].replace('{}', location)}, name that file, and set"
        f" kafka.ssl.{store}.type to PEM"
    )


def _one_pem(kafka: Mapping[str, str], names: tuple[str, ...]) -> Pem | None:
    given = [name for name in names if name in kafka]
    if len(given) > 1:
        raise OptionError(f"give one of the options {_names(given)}: they say the same")
    for name in given:
        if name.endswith(".location"):
            return Pem(name, location=kafka[name])
        return Pem(name, text=kafka[name])
    return None


def _names(names: tuple[str, ...] | list[str]) -> str:
    return " and ".join(f"kafka.{name}" for name in names)


def _versions(text: str) -> tuple[str, ...]:
    found = tuple(filter(None, (part.strip() for part in text.split(","))))
    if wrong := [version for version in found if version not in TLS_VERSIONS]:
        raise OptionError(
            f"option kafka.ssl.enabled.protocols has {wrong[0]!r}; there are"
            f" {' and '.join(TLS_VERSIONS)}"
        )
    return found


def _with_lines(text: str) -> str:
    """PEM that was given in one line, as options are: its base64 in lines again."""
    if "\n" in text.strip():
        return text
    blocks = re.findall(r"(-----BEGIN [^-]+-----)([^-]*)(-----END [^-]+-----)", text)
    lines = [line for begin, body, end in blocks for line in (begin, *body.split(), end)]
    return "\n".join([*lines, ""])


@functools.lru_cache(maxsize=CONTEXTS_MAX)
def context_of(tls: Tls) -> ssl.SSLContext:
    """The context of connections; reads the files that the options name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify and tls.verify_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    if tls.versions:
        chosen = sorted(TLS_VERSIONS[version] for version in tls.versions)
        context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    if tls.ciphers is not None:
        try:
            context.set_ciphers(tls.ciphers.replace(",", ":"))
        except ssl.SSLError:
            raise OptionError(
                f"option kafka.ssl.cipher.suites has none that OpenSSL knows: {tls.ciphers!r}"
            ) from None
    _load_trust(context, tls.trust)
    _load_identity(context, tls)
    return context


def _load_trust(context: ssl.SSLContext, trust: Pem | None) -> None:
    if trust is None:
        context.load_default_certs()
        return
    with contextlib.ExitStack() as until:
        try:
            context.load_verify_locations(trust.path(until))
        except (OSError, ValueError) as e:
            raise trust.refused(e) from None


def _load_identity(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.chain is None or tls.key is None:
        return
    with contextlib.ExitStack() as until:
        chain = tls.chain.path(until)
        key = chain if tls.key == tls.chain else tls.key.path(until)
        try:
            # A password, if only an empty one: without it OpenSSL would ask the terminal.
            context.load_cert_chain(chain, key, password=tls.key_password)
        except (OSError, ValueError) as e:
            raise tls.key.refused(e) from None


def tls_error(place: str, error: ssl.SSLError) -> SecurityError:
    """What TLS found wrong, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return SecurityError(
            f"the certificate of {place} is not trusted ({error.verify_message}); give the"
            " certificate of whoever signed it in kafka.ssl.truststore.location (type PEM) or"
            " kafka.ssl.ca.location, and call the broker by a name that is in its certificate"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"):
        return SecurityError(
            f"{place} does not speak TLS ({reason}); name a listener that does, or set"
            " kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    return SecurityError(
        f"{place} and we do not agree on TLS ({reason}); if it wants a client's certificate, give"
        " kafka.ssl.keystore.location (type PEM), or kafka.ssl.certificate.location and"
        " kafka.ssl.key.location"
    )
