"""Who may log in by SASL: the machines of each listener, made from settings and metadata.

Users have SCRAM credentials in the metadata, by which they get in by SCRAM or PLAIN; the settings
of a listener may name users of PLAIN, which need no metadata: nodes reach each other by those.
Delegation tokens get in by SCRAM; their secrets are made with `delegation.token.secret.key`.
Tokens of OAUTHBEARER are verified by keys that `node/token_keys.py` reads.

For a user that does not exist a credential is made up by the secret of one that does, the first by
name, and looks like most of them: it is the same on every node and after a restart, and changes
only when that one does. What is left to tell who exists: that user can know the secret; when it
changes, the salts of all who do not exist change; a user whose salt or iterations are of another
kind; by PLAIN, the time that SCRAM-SHA-512 takes longer than SCRAM-SHA-256.

Owned by the event loop's thread; the work of logins runs in threads of `api.sasl_gate`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from penstock.auth.delegation_tokens import token_credential
from penstock.auth.jaas import parse_jaas, plain_users
from penstock.auth.mechanism import Mechanism, TokenCredential
from penstock.auth.oauthbearer import OAUTHBEARER, BearerToken, OAuthBearerServer
from penstock.auth.plain import (
    PLAIN,
    ConfiguredPasswords,
    PasswordCache,
    PasswordChecker,
    PlainServer,
)
from penstock.auth.principal import USER
from penstock.auth.sasl import SaslConnection, SaslSettings
from penstock.auth.scram import HASHES, ScramCredential
from penstock.auth.scram_server import MadeUpCredentials, ScramServer, look
from penstock.config.broker_config import BrokerConfig
from penstock.config.listeners import SASL_PROTOCOLS
from penstock.config.table import ConfigError
from penstock.kafka.sasl import Sasl
from penstock.metadata.image import MetadataImage

log = logging.getLogger("penstock.node")

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Of the mechanisms in metadata records."""


class StoredCredentials:
    """Those of the metadata; without a secret key no delegation token is one."""

    def __init__(self, image: MetadataImage, token_secret_key: bytes | None = None) -> None:
        self._image = image
        self._token_secret_key = token_secret_key
        self._patterns: dict[str, ScramCredential | None] = {}

    def changed(self) -> None:
        self._patterns.clear()

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._image.security.scram.get((_NUMBERS[mechanism], user))

    def token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        secret_key, token = self._token_secret_key, self._image.security.tokens.get(token_id)
        if secret_key is None or token is None:
            return None
        return TokenCredential(
            partial(token_credential, secret_key, mechanism, token_id),
            token.owner.removeprefix(f"{USER}:"),
            min(token.expiry_ms, token.max_ms),
        )

    def pattern(self, mechanism: str) -> ScramCredential | None:
        """One that looks like most."""
        if mechanism not in self._patterns:
            number = _NUMBERS[mechanism]
            found = [c for (kind, _), c in self._image.security.scram.items() if kind == number]
            looks = Tally(map(look, found))
            most = max(looks, key=lambda one: (looks[one], one), default=None)
            self._patterns[mechanism] = next((c for c in found if look(c) == most), None)
        return self._patterns[mechanism]

    def secret(self) -> bytes:
        """What nobody outside knows, but the first of the users."""
        scram = self._image.security.scram
        known = scram[min(scram)].server_key if scram else b""
        return hmac.digest(b"of users that do not exist", known, hashlib.sha256)


class Logins:
    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        validate: Callable[[str, int], BearerToken] | None,
    ) -> None:
        """`validate` judges the tokens of OAUTHBEARER; None where it is not enabled."""
        self._config = config
        self._credentials = StoredCredentials(image, config.token_secret_key)
        self._validate = validate
        self._cache = PasswordCache(secrets.token_bytes(KEY_BYTES))
        self._made_up: MadeUpCredentials | None = None
        self._configured = _passwords(config)

    def credentials_changed(self) -> None:
        self._made_up = None
        self._credentials.changed()

    def settings_changed(self, config: BrokerConfig) -> None:
        """For logins from now on; what cannot be used leaves all as it is."""
        try:
            self._configured = _passwords(config)
        except ConfigError as e:
            log.error("the settings of logins are not taken: %s", e)
        else:
            self._config = config

    def new_login(self, listener: str, host: str) -> SaslConnection:
        """The machine of a new connection."""
        config = self._config
        # Keys of tokens are read from the start on, or not at all.
        names = [
            name
            for name in config.mechanisms(listener)
            if name != OAUTHBEARER or self._validate is not None
        ]
        return SaslConnection(
            {name: partial(self._mechanism, listener, name) for name in names},
            host,
            SaslSettings(
                {name: config.max_reauth_ms(listener, name) for name in names},
                config.connection_failed_authentication_delay_ms,
                config.sasl_server_max_receive_size,
            ),
        )

    def _mechanism(self, listener: str, name: str) -> Mechanism:
        if name == PLAIN:
            return PlainServer(
                PasswordChecker(
                    self._credentials,
                    self._for_unknown(),
                    self._cache,
                    self._configured.get(listener),
                )
            )
        if name in HASHES:
            nonce = base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
            return ScramServer(name, nonce, self._credentials, self._for_unknown())
        assert name == OAUTHBEARER
        assert self._validate is not None
        return OAuthBearerServer(self._validate)

    def _for_unknown(self) -> MadeUpCredentials:
        if self._made_up is None:
            self._made_up = MadeUpCredentials(self._credentials.secret())
        return self._made_up


def _passwords(config: BrokerConfig) -> dict[str, ConfiguredPasswords]:
    """By listener; `ConfigError` where they cannot be read."""
    found = {one.name: configured_users(config, one.name) for one in config.listen}
    return {
        listener: ConfiguredPasswords(secrets.token_bytes(KEY_BYTES), users)
        for listener, users in found.items()
        if users
    }


def configured_users(config: BrokerConfig, listener: str) -> Mapping[str, str]:
    """The users of PLAIN that the settings of a listener name, with their passwords."""
    text = config.jaas(listener, PLAIN)
    if text is None or config.protocol(listener) not in SASL_PROTOCOLS:
        return {}
    try:
        return plain_users(text)
    except ValueError as e:
        raise ConfigError(f"{_jaas_name(listener, PLAIN)} cannot be read: {e}") from None


def own_login(config: BrokerConfig, listener: str) -> Sasl | None:
    """By what this node logs in to a listener of other nodes; None where that has no SASL."""
    if config.protocol(listener) not in SASL_PROTOCOLS:
        return None
    setting, mechanism = _own_mechanism(config, listener)
    name = _jaas_name(listener, mechanism)
    if mechanism != PLAIN:
        raise ConfigError(
            f"{setting} cannot be {mechanism!r}: nodes reach each other "
            "before they know credentials, so it must be PLAIN, with the nodes' users in "
            f"{_jaas_name(listener, PLAIN)}; or let them reach each other by a listener with SSL"
        )
    text = config.jaas(listener, mechanism)
    try:
        options = {} if text is None else parse_jaas(text).options
    except ValueError as e:
        raise ConfigError(f"{name} cannot be read: {e}") from None
    username, password = options.get("username"), options.get("password")
    if not username or not password:
        raise ConfigError(
            f'{name} has no username="..." and password="...": with them this node logs in to the '
            "others"
        )
    return Sasl(mechanism, username, password)


def _own_mechanism(config: BrokerConfig, listener: str) -> tuple[str, str]:
    """The setting that says by which mechanism to log in, and what it says."""
    if listener in config.controller_listeners:
        mechanism = config.sasl_mechanism_controller_protocol
        return "sasl.mechanism.controller.protocol", mechanism.upper()
    mechanism = config.sasl_mechanism_inter_broker_protocol
    return "sasl.mechanism.inter.broker.protocol", mechanism.upper()


def _jaas_name(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
