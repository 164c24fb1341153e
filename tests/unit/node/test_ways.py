"""By which listeners the settings of a node let it reach others."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.table import ConfigError
from penstock.node.certificates import Certificates
from penstock.node.ways import ways_of
from penstock.peers.ways import Ways
from support.certificates import CertificateFiles

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="of-node";'
)


def config(between: str, listeners: str, **more: str) -> BrokerConfig:
    texts = {
        "log.dirs": "unused",
        "listeners": ",".join(
            f"{name}://127.0.0.1:{port}" for port, name in enumerate(listeners.split(), 9092)
        ),
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": between,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    return broker_config(texts | {name.replace("_", "."): text for name, text in more.items()})


def ways(between: str, listeners: str, **more: str) -> Ways:
    found = config(between, listeners, **more)
    return ways_of(found, Certificates(found, lambda: 0))


def test_the_wanted_listener_comes_first_and_then_the_safer_ones(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates", "unused")
    tls = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(files.broker),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(files.authority),
    }
    jaas = {"listener_name_login_plain_sasl_jaas_config": JAAS}
    found = ways("PLAINTEXT", "PLAINTEXT OTHER LOGIN SSL", **tls, **jaas)
    assert found.brokers == found.quorum == ("PLAINTEXT", "SSL", "LOGIN", "OTHER")
    assert found.logins.keys() == {"LOGIN"}
    assert ways("SSL", "PLAINTEXT SSL", **tls).brokers == ("SSL", "PLAINTEXT")
    assert ways("SSL", "SSL", **tls).brokers == ("SSL",), "what is closed is not spoken"
    assert found.is_fallback("SSL")
    assert not found.is_fallback("PLAINTEXT")


def test_a_listener_that_the_node_cannot_log_in_to_is_none_to_fall_back_on() -> None:
    assert ways("PLAINTEXT", "PLAINTEXT LOGIN").brokers == ("PLAINTEXT",)
    with pytest.raises(ConfigError, match=r"listener\.name\.login\.plain"):
        ways("LOGIN", "PLAINTEXT LOGIN")


def test_the_quorum_has_a_listener_of_its_own() -> None:
    controller = {
        "controller_listener_names": "CONTROLLER",
        "listener_name_controller_plain_sasl_jaas_config": JAAS,
    }
    both = "PLAINTEXT CONTROLLER"
    with pytest.raises(ConfigError, match=r"sasl\.mechanism\.controller\.protocol cannot be"):
        ways("PLAINTEXT", both, **controller)
    found = ways("PLAINTEXT", both, **controller, sasl_mechanism_controller_protocol="PLAIN")
    assert found.brokers == ("PLAINTEXT",)
    assert found.quorum == ("CONTROLLER", "PLAINTEXT")
    assert found.logins.keys() == {"CONTROLLER"}


@pytest.mark.parametrize(
    ("names", "listeners", "between", "why"),
    [
        ("CONTROLLER", "PLAINTEXT OTHER", "PLAINTEXT", "of which none is among listeners"),
        ("PLAINTEXT", "PLAINTEXT OTHER", "PLAINTEXT", "which is among controller.listener.names"),
        ("PLAINTEXT,OTHER", "PLAINTEXT OTHER", "", "none but those of controller.listener.names"),
    ],
)
def test_what_the_listeners_of_the_quorum_may_not_be(
    names: str, listeners: str, between: str, why: str
) -> None:
    texts = {
        "log.dirs": "unused",
        "listeners": ",".join(
            f"{name}://127.0.0.1:{port}" for port, name in enumerate(listeners.split(), 9092)
        ),
        "controller.listener.names": names,
    }
    if between:
        texts["inter.broker.listener.name"] = between
    with pytest.raises(ConfigError, match=why):
        broker_config(texts)


def test_without_a_name_brokers_use_the_first_listener_that_is_not_for_the_quorum() -> None:
    texts = {
        "log.dirs": "unused",
        "listeners": "CONTROLLER://127.0.0.1:1,PLAINTEXT://127.0.0.1:2",
        "controller.listener.names": "controller",
    }
    found = broker_config(texts)
    assert (found.inter_broker_listener, found.quorum_listener) == ("PLAINTEXT", "CONTROLLER")
    elsewhere = broker_config(
        texts | {"listeners": "PLAINTEXT://127.0.0.1:2", "process.roles": "broker"}
    )
    assert elsewhere.quorum_listener == "CONTROLLER"
