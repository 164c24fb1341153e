"""What a node needs to know who its clients are: the handlers of its listeners, and what they use.

A listener without SASL is served by the dispatcher itself, one with SASL by a gate in front of it.
Nothing is made for what no listener asks for. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.api.sasl_gate import LoginWork, SaslGate
from penstock.auth.oauthbearer import OAUTHBEARER
from penstock.config.broker_config import BrokerConfig
from penstock.config.listeners import SASL_PROTOCOLS
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.net.server import Handler
from penstock.node.doors import Doors
from penstock.node.logins import Logins

if TYPE_CHECKING:
    from penstock.node.token_keys import TokenKeys


class Authentication:
    def __init__(
        self,
        config: BrokerConfig,
        doors: Doors,
        image: MetadataImage,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._doors = doors
        self._now_ms = now_ms
        self._work: LoginWork | None = None
        self._keys: TokenKeys | None = None
        if any(OAUTHBEARER in config.mechanisms(one.name) for one in config.listen):
            from penstock.node.token_keys import TokenKeys  # large, and seldom needed

            self._keys = TokenKeys(config)
        validate = None if self._keys is None else self._keys.validate
        self._logins = Logins(config, image, validate)
        self.gates: dict[str, SaslGate] = {}
        """By the name of the listener."""

    def handler(self, listener: str) -> Handler:
        """Who takes the requests of a listener."""
        dispatcher = self._doors.of(listener)
        if self._config.protocol(listener) not in SASL_PROTOCOLS:
            return dispatcher
        if listener in self.gates:
            return self.gates[listener]  # it was closed and is opened again: it goes on counting
        if self._work is None:
            self._work = LoginWork()
        gate = self.gates[listener] = SaslGate(
            dispatcher, partial(self._logins.new_login, listener), self._work, self._now_ms
        )
        return gate

    def start(self) -> None:
        if self._keys is not None:
            self._keys.start()

    def stop(self) -> None:
        if self._keys is not None:
            self._keys.stop()
        if self._work is not None:
            self._work.stop()

    def settings_changed(self, config: BrokerConfig) -> None:
        self._config = config
        self._logins.settings_changed(config)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        if delta.security.scram:
            self._logins.credentials_changed()
