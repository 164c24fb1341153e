"""Settings as confluent-kafka takes them: both vocabularies come to one configuration."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from penstock.kafka import settings
from penstock.kafka.librdkafka import HANDED_ON, VOCABULARY, WITHOUT_EFFECT, config_of
from penstock.kafka.settings import ALIASES, client_of

SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TLS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}


def config(given: dict[str, str]) -> dict[str, str]:
    found = VOCABULARY.checked(given)
    return config_of(found, client_of(found).security)


def test_the_tables_do_not_contradict_each_other() -> None:
    shared = (settings.FOLLOWED, settings.UNUSED, settings.REFUSED, ALIASES)
    names = [name for table in (*shared, HANDED_ON, WITHOUT_EFFECT) for name in table]
    assert len(names) == len(set(names))
    known = settings.FOLLOWED.keys() | settings.UNUSED.keys() | HANDED_ON | WITHOUT_EFFECT.keys()
    assert set(ALIASES.values()) <= known


def test_javas_words_and_librdkafkas_come_to_the_same() -> None:
    java = {
        **TLS,
        "sasl.jaas.config": f'{SCRAM_LOGIN} username="ann" password="p q";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.key.password": "k",
        "request.timeout.ms": "1500",
        "ssl.endpoint.identification.algorithm": "",
    }
    own = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "p q",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "k",
        "socket.timeout.ms": "1500",
        "ssl.endpoint.identification.algorithm": "none",
    }
    expected = {**own, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    del expected["sasl.mechanisms"]
    expected["enable.ssl.certificate.verification"] = "true"
    assert config(java) == config(own) == expected


def test_texts_of_certificates_are_in_lines() -> None:
    one_line = "-----BEGIN CERTIFICATE----- AAAA BBBB -----END CERTIFICATE-----"
    found = config({"security.protocol": "SSL", "ssl.truststore.certificates": one_line})
    assert found["ssl.ca.pem"].split("\n")[1:3] == ["AAAA", "BBBB"]


_VALUES = {
    "allow.auto.create.topics": "true",
    "api.version.request": "true",
    "broker.address.family": "v4",
    "broker.version.fallback": "0.10.0",
    "check.crcs": "true",
    "client.dns.lookup": "use_all_dns_ips",
    "client.rack": "a",
    "compression.level": "1",
    "enable.idempotence": "true",
    "enable.metrics.push": "false",
    "max.in.flight.requests.per.connection": "5",
    "metadata.recovery.strategy": "none",
    "partitioner": "murmur2",
    "socket.keepalive.enable": "true",
    "socket.nagle.disable": "true",
    "socket.max.fails": "2",
    "fetch.max.bytes": "67108864",
    "receive.message.max.bytes": "100000000",
}


@pytest.mark.parametrize("name", sorted(HANDED_ON))
def test_what_is_handed_on_is_known_to_librdkafka(name: str) -> None:
    Producer(config({name: _VALUES.get(name, "1000")}))


@pytest.mark.parametrize(
    "name", ["request.timeout.ms", "socket.connection.setup.timeout.ms", "connections.max.idle.ms"]
)
def test_times_of_connections_are_known_to_librdkafka(name: str) -> None:
    Producer(config({name: "2000", "receive.buffer.bytes": "-1", "send.buffer.bytes": "65536"}))
