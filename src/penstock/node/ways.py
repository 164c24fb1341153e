"""The ways to other nodes that the settings of this one allow."""

from __future__ import annotations

from penstock.config.broker_config import BrokerConfig
from penstock.config.listeners import SASL_PROTOCOLS, TLS_PROTOCOLS
from penstock.config.table import ConfigError
from penstock.kafka.sasl import Sasl
from penstock.node.certificates import Certificates
from penstock.node.logins import own_login
from penstock.peers.ways import Ways


def ways_of(config: BrokerConfig, certificates: Certificates) -> Ways:
    """`ConfigError` where this node could not log in to others by the listeners that it is to
    reach them by. Of the others those are left out by which it cannot.
    """
    between, quorum = config.inter_broker_listener, config.quorum_listener
    logins = {name: own_login(config, name) for name in (between, quorum)}
    for listener in config.listen:
        if listener.name not in logins:
            try:
                logins[listener.name] = own_login(config, listener.name)
            except ConfigError:
                continue
    others = sorted(logins, key=lambda name: _strength(config, name), reverse=True)
    for_brokers = [name for name in others if name not in config.controller_listeners]
    return Ways(
        tuple(dict.fromkeys([between, *for_brokers])),
        tuple(dict.fromkeys([quorum, between, *others])),
        certificates.for_peers,
        {name: login for name, login in logins.items() if isinstance(login, Sasl)},
    )


def _strength(config: BrokerConfig, listener: str) -> tuple[bool, bool]:
    protocol = config.protocol(listener)
    return protocol in TLS_PROTOCOLS, protocol in SASL_PROTOCOLS
