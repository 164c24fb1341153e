"""Source and sink on a cluster with security: Apache Kafka with TLS, client certificates and SASL.

Every way in is shown by writing exactly once and reading back; every way to be kept out by its
sentence, which names the option and never the password.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.kafka.client import parse_addresses
from penstock.kafka.connection import Connection
from penstock.kafka.errors import ClientError, ClusterError, SecurityError, SettingError
from penstock.spark.client_settings import checked, spark_client
from penstock.spark.cluster import Cluster
from penstock.spark.fetch import Range
from penstock.spark.options import source_options
from penstock.spark.reading import read
from penstock.spark.sink import sink_options
from penstock.spark.writer import Work, commit_all
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from support import secured as secured_ways
from support.helpers import TopicMaker
from support.secured import (
    KEY_PASSWORD,
    PASSWORD,
    PLAIN_PASSWORD,
    PLAIN_USER,
    SESSION_MS,
    USER,
    Certificates,
    SecuredKafka,
    cannot_run,
)
from support.spark_sink import chunk, run_task
from support.spark_source import run_to_end
from support.waiting import CALL_SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(cannot_run() is not None, reason=str(cannot_run())),
]
Options = dict[str, str]
ROWS = 1000
POLL_S = 0.05
_numbers = itertools.count()
SECRETS = (PASSWORD, PLAIN_PASSWORD, KEY_PASSWORD)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured") / "kafka") as broker:
        broker.add_user()
        yield broker


@pytest.fixture
def topic(secured: SecuredKafka) -> str:
    return TopicMaker(secured, lambda: f"t{next(_numbers)}")()


def options_of(settings: dict[str, str]) -> Options:
    return {f"kafka.{name}": value for name, value in settings.items()}


def scram_tls(broker: SecuredKafka) -> Options:
    return options_of(secured_ways.scram_tls(broker))


def plain_tls(broker: SecuredKafka) -> Options:
    return options_of(secured_ways.plain_tls(broker))


def certificate_in_a_file(broker: SecuredKafka) -> Options:
    return options_of(secured_ways.certificate_in_a_file(broker))


def scram_alone(broker: SecuredKafka) -> Options:
    return {
        "kafka.bootstrap.servers": broker.at("SASL_PLAINTEXT"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": PASSWORD,
    }


def certificate_in_options(broker: SecuredKafka) -> Options:
    """The texts in one line, as they are written on a command line."""
    files: Certificates = broker.certificates

    def one_line(path: Path) -> str:
        return " ".join(path.read_text().split("\n"))

    return {
        "kafka.bootstrap.servers": broker.at("SSL"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": one_line(files.authority),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": one_line(files.open_client.with_suffix(".key")),
        "kafka.ssl.keystore.certificate.chain": one_line(files.open_client.with_suffix(".crt")),
    }


def certificate_by_librdkafkas_names(broker: SecuredKafka) -> Options:
    files = broker.certificates
    return {
        "kafka.bootstrap.servers": broker.at("SSL"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(files.authority),
        "kafka.ssl.certificate.location": str(files.client.with_suffix(".crt")),
        "kafka.ssl.key.location": str(files.client.with_suffix(".key")),
        "kafka.ssl.key.password": KEY_PASSWORD,
        "kafka.ssl.enabled.protocols": "TLSv1.2",
    }


WAYS = (
    scram_tls,
    plain_tls,
    scram_alone,
    certificate_in_a_file,
    certificate_in_options,
    certificate_by_librdkafkas_names,
)


def read_all(options: Options, topic: str) -> list[bytes]:
    """What the source reads of a topic, as Spark's driver and tasks do it."""
    found = source_options({**options, "subscribe": topic, "isolation.level": "read_committed"})
    cluster = Cluster(found)
    places = cluster.partitions()
    start, end = cluster.earliest(places), cluster.latest(places)
    ranges = [Range(*place, start[place], end[place]) for place in places]
    return [
        value
        for wanted in ranges
        for batch in read(wanted, found, cluster.brokers)
        for value in batch.column("value").to_pylist()
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_in_writes_exactly_once_and_reads(
    secured: SecuredKafka, topic: str, way: Callable[[SecuredKafka], Options]
) -> None:
    options = way(secured)
    sink = sink_options({**options, "topic": topic})
    handed = run_task(sink, Work(f"way-{topic}", 0, 0), chunk([b"a", b"b"]))
    assert read_all(options, topic) == []
    commit_all(sink, [handed])
    repeated = run_task(sink, Work(f"way-{topic}", 0, 0), chunk([b"a", b"b"]))
    commit_all(sink, [repeated])
    deadline = time.monotonic() + CALL_SECONDS_MAX
    while len(found := read_all(options, topic)) < 2:  # markers come after the answer
        assert time.monotonic() < deadline
    assert found == [b"a", b"b"]


def test_a_batch_and_a_stream_through_spark(
    spark: SparkSession, secured: SecuredKafka, topic: str, tmp_path: Path
) -> None:
    copy = TopicMaker(secured, lambda: f"{topic}-copy")()
    options = scram_tls(secured)
    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
    rows.write.format("penstock").options(**options, topic=topic).mode("append").save()
    reader = spark.readStream.format("penstock").options(**plain_tls(secured), subscribe=topic)
    writer = (
        reader.options(**{"startingOffsets": "earliest", "kafka.group.id": f"g-{topic}"})
        .load()
        .writeStream.format("penstock")
        .options(**certificate_in_a_file(secured), topic=copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_to_end(writer.start)
    frame = spark.read.format("penstock").options(**options, subscribe=copy).load()
    found = frame.selectExpr("cast(value as string) as value")
    assert sorted(int(row["value"]) for row in found.collect()) == list(range(ROWS))
    plans = plans_shown(spark)
    assert any("penstock" in plan for plan in plans)
    assert not any(secret in plan for plan in plans for secret in SECRETS)


def plans_shown(spark: SparkSession) -> list[str]:
    """What Spark's own pages show of the queries that it ran."""
    ran = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [ran.apply(n).physicalPlanDescription() for n in range(ran.size())]


def error_of(options: Options, topic: str, kind: type[ClientError] = SecurityError) -> str:
    """What source and sink say of options that do not work."""
    patience = {"kafka.default.api.timeout.ms": "500", "kafka.delivery.timeout.ms": "500"}
    with pytest.raises(kind) as reading:
        read_all({**options, **patience}, topic)
    sink = sink_options({**options, **patience, "topic": topic})
    with pytest.raises(kind) as writing:
        run_task(sink, Work("kept-out", 0, 0), chunk([b"a"]))
    said = str(reading.value)
    assert str(writing.value) == said
    assert "\n" not in said
    assert not any(secret in said for secret in (*SECRETS, "wrong-password"))
    return said


def test_a_wrong_password(secured: SecuredKafka, topic: str) -> None:
    for way, user in ((scram_alone, USER), (plain_tls, PLAIN_USER)):
        said = error_of(way(secured) | {"kafka.sasl.password": "wrong-password"}, topic)
        assert f"and user {user!r} do not agree by" in said
        assert "kafka.sasl.mechanism, the name and the password" in said


def test_a_mechanism_that_the_broker_does_not_have(secured: SecuredKafka, topic: str) -> None:
    said = error_of(scram_alone(secured) | {"kafka.sasl.mechanism": "SCRAM-SHA-512"}, topic)
    assert "does not take kafka.sasl.mechanism SCRAM-SHA-512; it takes" in said
    assert "SCRAM-SHA-256" in said


def test_an_authority_that_did_not_sign_the_broker(secured: SecuredKafka, topic: str) -> None:
    other = {"kafka.ssl.ca.location": str(secured.certificates.stranger)}
    said = error_of(plain_tls(secured) | other, topic)
    assert f"the certificate of {secured.at('SASL_SSL')} is not trusted" in said
    assert "kafka.ssl.ca.location" in said


def test_a_broker_by_another_name_than_its_certificates(secured: SecuredKafka, topic: str) -> None:
    there = {"kafka.bootstrap.servers": secured.at("SASL_SSL", "localhost")}
    said = error_of(plain_tls(secured) | there, topic)
    assert "is not trusted (Hostname mismatch" in said
    careless = {"kafka.ssl.endpoint.identification.algorithm": ""}
    assert read_all(plain_tls(secured) | there | careless, topic) == []


def test_no_certificate_where_the_broker_wants_one(secured: SecuredKafka, topic: str) -> None:
    bare = {
        "kafka.bootstrap.servers": secured.at("SSL"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(secured.certificates.authority),
    }
    said = error_of(bare, topic, ClusterError)
    assert "certificate" in said
    assert "kafka." in said


def test_the_wrong_password_of_a_key(secured: SecuredKafka, topic: str) -> None:
    said = error_of(
        certificate_in_a_file(secured) | {"kafka.ssl.key.password": "wrong-password"},
        topic,
        SettingError,
    )
    assert "option kafka.ssl.keystore.location" in said
    assert "kafka.ssl.key.password" in said


def test_the_wrong_protocol_for_a_port(secured: SecuredKafka, topic: str) -> None:
    plain = {"kafka.security.protocol": "PLAINTEXT"}
    said = error_of(plain | {"kafka.bootstrap.servers": secured.at("SSL")}, topic)
    assert "speaks TLS, and kafka.security.protocol is PLAINTEXT" in said
    there = {"kafka.bootstrap.servers": secured.at("SASL_PLAINTEXT")}
    said = error_of(plain | there, topic, ClusterError)
    assert "expects another kafka.security.protocol than PLAINTEXT" in said
    said = error_of(plain_tls(secured) | there, topic, ClusterError)
    assert "kafka.security.protocol" in said


def test_a_session_is_renewed_before_the_broker_ends_it(secured: SecuredKafka) -> None:
    options = scram_alone(secured) | {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": PLAIN_USER,
        "kafka.sasl.password": PLAIN_PASSWORD,
    }
    kafka = {name.removeprefix("kafka."): value for name, value in options.items()}
    connection = Connection(
        parse_addresses(kafka["bootstrap.servers"])[0], spark_client(checked(kafka))
    )
    until = time.monotonic() + SESSION_MS / 1000 * 1.3
    while time.monotonic() < until:
        assert connection.call(MetadataRequest(topics=[]), MetadataResponse, 9).brokers
        time.sleep(POLL_S)
    connection.close()
