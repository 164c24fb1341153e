"""Who a client is to the cluster, and how it knows the cluster: TLS and SASL from settings.

Duty: settings of either family of names, Java's (`ssl.truststore.*`, `sasl.jaas.config`) or
librdkafka's (`ssl.ca.location`, `sasl.username`), become a `Security`, and that becomes a TLS
context and an exchange. What cannot be had (JKS and PKCS#12 stores, Kerberos, OAuth) is refused
with the way out.

Invariants: a broker's certificate and the host's name in it are verified unless a setting says
otherwise. A `Security` holds what it takes to connect and nothing more; passwords and keys are
in no `repr` and in no message.

Limits: certificates and keys are PEM. Files are read once by each process, on the machine where it
runs; a changed file counts from the next process on.
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

from penstock.auth.jaas import PLAIN_MODULE, parse_jaas
from penstock.kafka.errors import SecurityError, SettingError
from penstock.kafka.sasl import MECHANISMS, PLAIN, Sasl
from penstock.kafka.spelling import PLAIN_SPELLING, Spelling

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
RIVALS: Final[dict[str, tuple[str, ...]]] = {
    **{name: group for group in (_TRUST, _CHAIN, _KEY) for name in group},
    "ssl.keystore.location": (*_CHAIN, *_KEY),
    "sasl.jaas.config": ("sasl.username", "sasl.password"),
    "sasl.username": ("sasl.jaas.config",),
    "sasl.password": ("sasl.jaas.config",),
}
"""Settings that say the same as another one: given later, it stands for them."""
_WAYS_OUT: Final = {
    "truststore": "keytool -exportcert -rfc -alias CA -keystore {} > ca.pem",
    "keystore": "openssl pkcs12 -in {} -out client.pem (before it, for a store that is JKS:"
    " keytool -importkeystore -srckeystore {} -destkeystore client.p12 -deststoretype PKCS12)",
}


@dataclass(frozen=True)
class Pem:
    """Certificates or a key, in a file or in the setting itself."""

    setting: str
    location: str | None = None
    text: str | None = field(default=None, repr=False)

    def path(self, until: contextlib.ExitStack) -> str:
        """A file with it; one that is made for it lasts until the end of `until`."""
        if self.location is not None:
            return self.location
        made = until.enter_context(tempfile.NamedTemporaryFile("w", suffix=".pem"))  # noqa: SIM115
        made.write(self.in_lines())
        made.flush()
        return made.name

    def in_lines(self) -> str:
        """The text; what was given in one line, as settings are, in the lines that PEM wants."""
        text = self.text or ""
        if "\n" in text.strip():
            return text
        blocks = re.findall(r"(-----BEGIN [^-]+-----)([^-]*)(-----END [^-]+-----)", text)
        lines = [line for begin, body, end in blocks for line in (begin, *body.split(), end)]
        return "\n".join([*lines, ""])

    def refused(self, error: Exception, spelling: Spelling) -> SettingError:
        what = f" {self.location}" if self.location is not None else ""
        why = error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
        return SettingError(
            f"{spelling.full(self.setting)}:{what} cannot be used as PEM ({why or error}); see that"
            f" it is there on every machine that connects, and that"
            f" {spelling.name('ssl.key.password')} is right if it is an encrypted key"
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
    spelling: Spelling = PLAIN_SPELLING


@dataclass(frozen=True)
class Security:
    """Plain, unless it says otherwise."""

    tls: Tls | None = None
    sasl: Sasl | None = None
    spelling: Spelling = PLAIN_SPELLING

    @property
    def protocol(self) -> str:
        """The value of security.protocol."""
        name = "PLAINTEXT" if self.tls is None else "SSL"
        return name if self.sasl is None else f"SASL_{name}"


PLAIN_SECURITY: Final = Security()


def security_of(kafka: Mapping[str, str], spelling: Spelling = PLAIN_SPELLING) -> Security:
    """What settings ask for, checked as far as it can be without files and brokers."""
    given = kafka.get("security.protocol")
    protocol = (given or "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise SettingError(
            f"{spelling.full('security.protocol')} must be one of {', '.join(PROTOCOLS)}, not"
            f" {given!r}"
        )
    if given is None:
        for name in (*_CREDENTIALS, *_TRUST, *_CHAIN, *_KEY):
            if name in kafka:
                raise SettingError(
                    f"{spelling.full(name)} is given, but {spelling.name('security.protocol')} is"
                    " not: set it to SSL, SASL_SSL or SASL_PLAINTEXT, or to PLAINTEXT to connect"
                    " without security"
                )
    return Security(
        tls=tls_of(kafka, spelling) if protocol.endswith("SSL") else None,
        sasl=_SaslReader(kafka, spelling).read() if protocol.startswith("SASL") else None,
        spelling=spelling,
    )


def tls_of(kafka: Mapping[str, str], spelling: Spelling = PLAIN_SPELLING) -> Tls:
    """What ssl settings ask for, be it a client's or a node's."""
    return _TlsReader(kafka, spelling).read()


@dataclass(frozen=True)
class _Reader:
    kafka: Mapping[str, str]
    spelling: Spelling

    def named(self, name: str) -> str:
        return self.spelling.name(name)

    def wrong(self, name: str, why: str) -> SettingError:
        """The error of one setting; `why` goes on after its name."""
        return SettingError(f"{self.spelling.full(name)} {why}")


class _SaslReader(_Reader):
    def read(self) -> Sasl:
        mechanism = self.kafka.get("sasl.mechanism", "").strip().upper()
        if mechanism not in MECHANISMS:
            what = f"is {mechanism}, which cannot be had here" if mechanism else "is missing"
            raise self.wrong(
                "sasl.mechanism",
                f"{what}: give {', '.join(MECHANISMS)}, whichever the brokers have in"
                f" sasl.enabled.mechanisms; for Kerberos or OAuth {self.spelling.elsewhere}",
            )
        jaas, username, password = (
            self.kafka.get(name) for name in ("sasl.jaas.config", "sasl.username", "sasl.password")
        )
        if jaas is not None and (username is not None or password is not None):
            raise SettingError(
                f"give one of the {self.spelling.noun}s {self.named('sasl.jaas.config')} and"
                f" {self.named('sasl.username')}: they say the same"
            )
        if jaas is not None:
            return self._of_jaas(mechanism, jaas)
        for name, value in (("sasl.username", username), ("sasl.password", password)):
            if not value:
                raise self.wrong(
                    name,
                    f"is missing: {mechanism} wants {self.named('sasl.username')} and"
                    f" {self.named('sasl.password')}, or both in {self.named('sasl.jaas.config')}",
                )
        return Sasl(mechanism, username or "", password or "")

    def _of_jaas(self, mechanism: str, text: str) -> Sasl:
        setting = "sasl.jaas.config"
        try:
            login = parse_jaas(text)
        except ValueError as e:
            raise self.wrong(setting, f"cannot be read: {e}") from None
        wanted = PLAIN_MODULE if mechanism == PLAIN else "ScramLoginModule"
        if login.module.rpartition(".")[2] != wanted:
            raise self.wrong(
                setting,
                f"does not name the login module {wanted}, which {self.named('sasl.mechanism')}"
                f" {mechanism} wants",
            )
        if login.options.get("tokenauth", "").lower() == "true":
            raise self.wrong(
                setting,
                "asks for a delegation token (tokenauth), which cannot be had here: give the name"
                " and password of a user",
            )
        for name in ("username", "password"):
            if not login.options.get(name):
                raise self.wrong(setting, f'has no {name}="..."')
        return Sasl(mechanism, login.options["username"], login.options["password"])


class _TlsReader(_Reader):
    def read(self) -> Tls:
        for store in _WAYS_OUT:
            self._check_store(store)
        chain, key = self._identity()
        algorithm = self.kafka.get("ssl.endpoint.identification.algorithm", "https")
        if (algorithm := algorithm.strip().lower()) not in ("https", "none", ""):
            raise self.wrong(
                "ssl.endpoint.identification.algorithm",
                "must be https, or none or empty to trust any host that has a trusted certificate,"
                f" not {algorithm!r}",
            )
        verification = self.kafka.get("enable.ssl.certificate.verification", "true")
        if (verification := verification.strip().lower()) not in ("true", "false"):
            raise self.wrong("enable.ssl.certificate.verification", "must be true or false")
        return Tls(
            trust=self._one_pem(_TRUST),
            chain=chain,
            key=key,
            key_password=self.kafka.get("ssl.key.password", ""),
            verify=verification == "true",
            verify_host=algorithm == "https",
            versions=self._versions(),
            ciphers=self.kafka.get("ssl.cipher.suites"),
            spelling=self.spelling,
        )

    def _identity(self) -> tuple[Pem | None, Pem | None]:
        """The client's certificates and its key; both or none."""
        chain, key = self._one_pem(_CHAIN), self._one_pem(_KEY)
        if chain is not None and chain.setting == "ssl.keystore.location" and key is None:
            key = chain
        alone = chain if key is None else key if chain is None else None
        if alone is not None:
            raise self.wrong(
                alone.setting,
                "is given alone: a client's certificate and its key go together; the other is one"
                f" of {self._names(_KEY if key is None else _CHAIN)}",
            )
        return chain, key

    def _check_store(self, store: str) -> None:
        """Java takes a store for JKS unless it is told otherwise."""
        location = self.kafka.get(f"ssl.{store}.location")
        kind = self.kafka.get(f"ssl.{store}.type", "JKS").strip().upper()
        if location is None or kind == "PEM":
            return
        type_name = self.named(f"ssl.{store}.type")
        raise self.wrong(
            f"ssl.{store}.location",
            f"is a store of type {kind} ({type_name}), which cannot be read here: write it as PEM"
            f" with {_WAYS_OUT[store].replace('{}', location)}, name that file, and set"
            f" {type_name} to PEM",
        )

    def _one_pem(self, names: tuple[str, ...]) -> Pem | None:
        given = [name for name in names if name in self.kafka]
        if len(given) > 1:
            raise SettingError(
                f"give one of the {self.spelling.noun}s {self._names(given)}: they say the same"
            )
        for name in given:
            if name.endswith(".location"):
                return Pem(name, location=self.kafka[name])
            return Pem(name, text=self.kafka[name])
        return None

    def _names(self, names: tuple[str, ...] | list[str]) -> str:
        return " and ".join(map(self.named, names))

    def _versions(self) -> tuple[str, ...]:
        text = self.kafka.get("ssl.enabled.protocols", "")
        found = tuple(filter(None, (part.strip() for part in text.split(","))))
        if wrong := [version for version in found if version not in TLS_VERSIONS]:
            raise self.wrong(
                "ssl.enabled.protocols", f"has {wrong[0]!r}; there are {' and '.join(TLS_VERSIONS)}"
            )
        return found


@functools.lru_cache(maxsize=CONTEXTS_MAX)
def context_of(tls: Tls) -> ssl.SSLContext:
    """The context of connections; of the same settings it is the same one."""
    return client_context(tls)


def client_context(tls: Tls) -> ssl.SSLContext:
    """A context of connections; reads the files that the settings name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify and tls.verify_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    set_versions_and_ciphers(context, tls)
    load_trust(context, tls)
    load_identity(context, tls)
    return context


def set_versions_and_ciphers(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.versions:
        chosen = sorted(TLS_VERSIONS[version] for version in tls.versions)
        context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    if tls.ciphers is not None:
        try:
            context.set_ciphers(tls.ciphers.replace(",", ":"))
        except ssl.SSLError:
            raise SettingError(
                f"{tls.spelling.full('ssl.cipher.suites')} has none that OpenSSL knows:"
                f" {tls.ciphers!r}"
            ) from None


def load_trust(context: ssl.SSLContext, tls: Tls) -> None:
    if (trust := tls.trust) is None:
        context.load_default_certs()
        return
    with contextlib.ExitStack() as until:
        try:
            context.load_verify_locations(trust.path(until))
        except (OSError, ValueError) as e:
            raise trust.refused(e, tls.spelling) from None


def load_identity(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.chain is None or tls.key is None:
        return
    with contextlib.ExitStack() as until:
        chain = tls.chain.path(until)
        key = chain if tls.key == tls.chain else tls.key.path(until)
        try:
            # A password, if only an empty one: without it OpenSSL would ask the terminal.
            context.load_cert_chain(chain, key, password=tls.key_password)
        except (OSError, ValueError) as e:
            raise tls.key.refused(e, tls.spelling) from None


def tls_error(place: str, error: ssl.SSLError, spelling: Spelling) -> SecurityError:
    """What TLS found wrong, in words."""
    named = spelling.name
    if isinstance(error, ssl.SSLCertVerificationError):
        return SecurityError(
            f"the certificate of {place} is not trusted ({error.verify_message}); give the"
            f" certificate of whoever signed it in {named('ssl.truststore.location')} (type PEM) or"
            f" {named('ssl.ca.location')}, and call the broker by a name that is in its certificate"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"):
        return SecurityError(
            f"{place} does not speak TLS ({reason}); name a listener that does, or set"
            f" {named('security.protocol')} to PLAINTEXT or SASL_PLAINTEXT"
        )
    return SecurityError(
        f"{place} and we do not agree on TLS ({reason}); if it wants a client's certificate, give"
        f" {named('ssl.keystore.location')} (type PEM), or {named('ssl.certificate.location')} and"
        f" {named('ssl.key.location')}"
    )
