"""The settings of TLS and SASL, and what they must have to make sense."""

from __future__ import annotations

import pytest

from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.layers import BrokerSettings
from penstock.config.table import ConfigError

TLS = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/etc/node.pem"}
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/ca.pem"}


def config(listeners: str, **texts: str) -> BrokerConfig:
    return broker_config({"listeners": listeners, **texts})


def refusal(listeners: str, **texts: str) -> str:
    with pytest.raises(ConfigError) as refused:
        config(listeners, **texts)
    return str(refused.value)


def test_a_listener_with_tls_needs_a_certificate_in_pem() -> None:
    assert "SSL speaks TLS and needs a certificate" in refusal("SSL://:1")
    said = refusal("SSL://:1", **{"ssl.keystore.location": "/etc/keys.jks"})
    assert "only PEM can be read" in said
    assert config("SSL://:1", **TLS).protocol("SSL") == "SSL"
    mapped = {"listener.security.protocol.map": "outside:ssl"}
    assert "OUTSIDE speaks TLS" in refusal("OUTSIDE://:1", **mapped)


def test_who_asks_for_certificates_says_whose() -> None:
    for auth in ("requested", "required"):
        said = refusal("SSL://:1", **TLS, **{"ssl.client.auth": auth})
        assert f"ssl.client.auth is {auth} for the listener SSL: set ssl.truststore" in said
    config("SSL://:1", **TLS, **TRUST, **{"ssl.client.auth": "required"})


def test_a_listener_may_have_settings_of_its_own() -> None:
    own = {"listener.name.inside.ssl.client.auth": "required", "ssl.client.auth": "requested"}
    protocols = {"listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL"}
    found = config("INSIDE://:1,OUTSIDE://:2", **TLS, **TRUST, **own, **protocols)
    assert found.tls_texts("INSIDE")["ssl.client.auth"] == "required"
    assert found.tls_texts("OUTSIDE")["ssl.client.auth"] == "requested"
    assert found.tls_texts("INSIDE")["ssl.keystore.location"] == "/etc/node.pem"


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({}, "sasl.enabled.mechanisms is GSSAPI for the listener SASL_PLAINTEXT"),
        ({"sasl.enabled.mechanisms": "PLAIN,KERBEROS"}, "must be a list of PLAIN, SCRAM-SHA-256"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "X"}, "is X for the listener"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "without keys to verify tokens with"),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "http://keys",
            },
            "must be an https: or a file: URL",
        ),
    ],
)
def test_a_listener_with_sasl_needs_mechanisms_that_are_here(
    texts: dict[str, str], sentence: str
) -> None:
    assert sentence in refusal("SASL_PLAINTEXT://:1", **texts)


def test_settings_of_a_mechanism_are_those_of_one_listener() -> None:
    texts = {
        "sasl.enabled.mechanisms": "scram-sha-512,PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": "a login",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "5000",
        "connections.max.reauth.ms": "60000",
    }
    found = config("SASL_PLAINTEXT://:1", **texts)
    assert found.mechanisms("SASL_PLAINTEXT") == ("SCRAM-SHA-512", "PLAIN")
    assert found.jaas("SASL_PLAINTEXT", "PLAIN") == "a login"
    assert found.jaas("SASL_PLAINTEXT", "SCRAM-SHA-512") is None
    assert found.max_reauth_ms("SASL_PLAINTEXT", "PLAIN") == 5_000
    assert found.max_reauth_ms("SASL_PLAINTEXT", "SCRAM-SHA-512") == 60_000


def test_secrets_are_neither_described_nor_shown() -> None:
    texts = {
        "listeners": "SASL_SSL://:1",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.key": "top-secret",
        "ssl.keystore.certificate.chain": "top-secret",
        "ssl.key.password": "top-secret",
        "listener.name.sasl_ssl.ssl.key.password": "top-secret",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "top-secret",
    }
    settings = BrokerSettings(texts)
    shown = {entry.name: entry for entry in settings.describe_broker()}
    for name in texts:
        if name not in ("listeners", "sasl.enabled.mechanisms"):
            assert shown[name].value is None, name
            assert shown[name].sensitive, name
    assert "top-secret" not in repr(settings.config)
    assert BrokerSettings.of(settings.config).config == settings.config
