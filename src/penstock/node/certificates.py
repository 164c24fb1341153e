"""The certificates of a node: read at the start, and again when a file or a setting has changed.

Each listener that speaks TLS has a context for those who connect, and another for the connections
that this node makes to the same listener of other nodes. A context is replaced as a whole, for
new connections; those that exist stay. What cannot be read, or is in another name, is refused with
an alarm, and the node goes on with what it had.

Files are read in a worker thread, but for the start. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.auth.dn import PrincipalMapper, subject_name
from penstock.base.errors import PenstockError
from penstock.config.broker_config import BrokerConfig
from penstock.config.broker_security import NONE
from penstock.config.listeners import SSL, TLS_PROTOCOLS
from penstock.config.table import ConfigError
from penstock.kafka.errors import SettingError
from penstock.kafka.security import Pem, Tls, client_context, tls_of
from penstock.net.tls import ListenerTls, server_context
from penstock.observe.logs import Alarm

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger("penstock.node")

Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]
EXPIRES_SOON_S: Final = 14 * 24 * 3600
"""So long before the end of a certificate its alarm begins."""
EXPIRY_ALARM_S: Final = 3600.0
"""How often the alarm is repeated, and how often the node looks where it reads no files again."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the ssl settings of a listener came to, and from which files."""

    texts: Mapping[str, str]
    stamp: Stamp
    server: ssl.SSLContext
    client: ssl.SSLContext
    subject: str
    hosts: frozenset[str]
    not_after_s: float


class CertificateRefused(PenstockError):
    """What was read may not take the place of what is in use."""


class Certificates:
    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._now_ms = now_ms
        try:
            self._mapper = PrincipalMapper(config.ssl_principal_mapping_rules)
        except ValueError as e:
            raise ConfigError(f"ssl.principal.mapping.rules cannot be used: {e}") from None
        self._loaded: dict[str, Loaded] = {}
        self._tls: dict[str, ListenerTls] = {}
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wanted = False
        self._alarm = Alarm(log)
        self._expiry_alarm = Alarm(log, interval_s=EXPIRY_ALARM_S)

    def load(self, listener: str) -> ListenerTls | None:
        """The TLS of a listener, None if it has none; `SettingError` where it cannot be had."""
        if self._config.protocol(listener) not in TLS_PROTOCOLS:
            return None
        if listener not in self._tls:
            found = load(self._config.tls_texts(listener))
            self._loaded[listener] = found
            # By a listener with SASL the login says who somebody is, not the certificate.
            names = self._config.protocol(listener) == SSL
            self._tls[listener] = ListenerTls(found.server, self._name_of if names else None)
        return self._tls[listener]

    def _name_of(self, certificate: bytes) -> str:
        subject = subject_name(certificate)
        name = self._mapper.name(subject)
        if name is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules is for {subject!r}")
        return name

    def for_peers(self, listener: str) -> ssl.SSLContext | None:
        """For connections to a listener of that name at other nodes; None if that is plain."""
        found = self._loaded.get(listener)
        return None if found is None else found.client

    def handshakes_failed(self) -> dict[str, int]:
        """By listener."""
        return {listener: tls.failed_total for listener, tls in self._tls.items()}

    def not_after_s(self) -> dict[str, float]:
        """When the certificate of each listener ends, in seconds since 1970."""
        return {listener: found.not_after_s for listener, found in self._loaded.items()}

    # -- while the node runs -------------------------------------------------------------------

    def begin(self) -> None:
        """Look at the certificates, now and again and again."""
        self._warn_of_ends()
        interval_s = self._config.penstock_ssl_reload_interval_ms / 1000
        loop = asyncio.get_running_loop()
        if interval_s > 0:
            self._timer = loop.call_later(interval_s, self._look_again)
        else:
            self._timer = loop.call_later(EXPIRY_ALARM_S, self.begin)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def settings_changed(self, config: BrokerConfig) -> None:
        self._config = config
        self._read()

    def _look_again(self) -> None:
        self._read()
        self.begin()

    def _warn_of_ends(self) -> None:
        now_s = self._now_ms() / 1000
        for listener, ends_s in self.not_after_s().items():
            if ends_s - now_s < EXPIRES_SOON_S:
                over = ends_s <= now_s
                self._expiry_alarm.raised(
                    listener,
                    "the certificate of a listener has ended"
                    if over
                    else "the certificate of a listener ends soon",
                    listener=listener,
                    ends=datetime.fromtimestamp(ends_s, UTC).isoformat(),
                )

    def _read(self) -> None:
        self._wanted = True
        if self._tls and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._replace_changed())

    async def _replace_changed(self) -> None:
        while self._wanted:  # settings may change while files are read
            self._wanted = False
            await self._replace_once()

    async def _replace_once(self) -> None:
        for listener in list(self._tls):
            old, texts = self._loaded[listener], self._config.tls_texts(listener)
            try:
                found = await asyncio.to_thread(load_if_changed, texts, old)
                if found is None:
                    continue
                check_names(old, found, self._config)
            except (SettingError, CertificateRefused) as e:
                self._alarm.raised(
                    f"certificates {listener}",
                    "the certificates of a listener are not replaced",
                    listener=listener,
                    reason=str(e),
                )
                continue
            self._loaded[listener] = found
            self._tls[listener].context = found.server
            log.info("the certificates of the listener %s are replaced", listener)


def load_if_changed(texts: Mapping[str, str], old: Loaded) -> Loaded | None:
    """In a worker thread."""
    tls = tls_of(texts)
    if texts == old.texts and _stamp(tls) == old.stamp:
        return None
    return load(texts)


def load(texts: Mapping[str, str]) -> Loaded:
    """Read the files that ssl settings name; `SettingError` if they cannot be used."""
    from cryptography import x509  # a node without TLS starts sooner without it

    tls = tls_of(texts)
    stamp = _stamp(tls)
    server = server_context(tls, texts.get("ssl.client.auth", NONE))
    client = client_context(tls)
    assert tls.chain is not None  # without one there is no server context
    try:
        certificate = x509.load_pem_x509_certificates(_bytes(tls.chain))[0]
        return Loaded(
            dict(texts),
            stamp,
            server,
            client,
            certificate.subject.rfc4514_string(),
            _hosts(certificate),
            certificate.not_valid_after_utc.timestamp(),
        )
    except (OSError, ValueError, IndexError, x509.DuplicateExtension) as e:
        raise tls.chain.refused(e, tls.spelling) from None


def check_names(old: Loaded, new: Loaded, config: BrokerConfig) -> None:
    """As Kafka does: what replaces a certificate has its names, unless settings allow others."""
    if new.subject != old.subject and not config.ssl_allow_dn_changes:
        raise CertificateRefused(
            f"the certificate is for {new.subject!r} now, and was for {old.subject!r}: set "
            "ssl.allow.dn.changes to allow that"
        )
    if (missing := old.hosts - new.hosts) and not config.ssl_allow_san_changes:
        raise CertificateRefused(
            f"the certificate is not for {', '.join(sorted(missing))} any more: set "
            "ssl.allow.san.changes to allow that"
        )


def _stamp(tls: Tls) -> Stamp:
    """What changes when a file does."""
    stamps = []
    for pem in (tls.trust, tls.chain, tls.key):
        if pem is not None and pem.location is not None:
            try:
                found = os.stat(pem.location)
            except OSError as e:
                raise pem.refused(e, tls.spelling) from None
            stamps.append((pem.location, found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)


def _bytes(pem: Pem) -> bytes:
    if pem.location is None:
        return pem.in_lines().encode()
    with open(pem.location, "rb") as file:
        return file.read()


def _hosts(certificate: x509.Certificate) -> frozenset[str]:
    """The names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)
