"""Every client by every way in: TLS, certificates of clients, and SASL by each mechanism; and who
is kept out.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.admin
import aiokafka.errors
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.net.sasl.oauth import AbstractTokenProvider

from support.certificates import DAY
from support.helpers import QUIET, produce_all
from support.reference import java_command
from support.secured import PASSWORD, PLAIN_PASSWORD
from support.secured_node import (
    MECHANISMS,
    SESSION_MS,
    SecuredNode,
    Settings,
    for_java,
    for_python,
    token,
)
from support.tools import Tools
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

COUNT = 20
SIMPLE = "carl", "of-carl"
WAYS = [
    ("SSL", ""),
    ("MTLS", ""),
    *((listener, name) for listener in ("SASL_SSL", "SASL_PLAINTEXT") for name in MECHANISMS),
]
IDS = ["-".join(filter(None, way)) for way in WAYS]
AGAIN_S = 3 * SESSION_MS / 1000
JAVA_SECONDS_MAX = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("secured") / "node") as made:
        made.add_user()
        made.add_user(*SIMPLE)
        yield made


def named(client: str, listener: str, mechanism: str) -> str:
    return "-".join(filter(None, (client, listener, mechanism))).lower()


# -- confluent-kafka -------------------------------------------------------------------------------


def librdkafka(way: Settings, given: str | None = None) -> dict[str, Any]:
    own: dict[str, Any] = {**way, **QUIET}
    if way.get("sasl.mechanism") == "OAUTHBEARER":
        own["oauth_cb"] = lambda _: (given or token(), time.time() + 600)
    return own


@pytest.mark.parametrize(("listener", "mechanism"), WAYS, ids=IDS)
def test_confluent(node: SecuredNode, listener: str, mechanism: str) -> None:
    own, topic = librdkafka(node.way(listener, mechanism)), named("c", listener, mechanism)
    admin = AdminClient(own)
    admin.poll(0)  # where a token is asked for
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(CALL_SECONDS_MAX)
    produce_all(Producer(own), topic, [{"value": b"%d" % i} for i in range(COUNT)])
    consumer = Consumer({**own, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[bytes] = []

    def all_seen() -> bool:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            seen.append(message.value() or b"")
        return len(seen) == COUNT

    eventually(all_seen, every=0.0)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert seen == [b"%d" % i for i in range(COUNT)]


# -- kafka-python and aiokafka ---------------------------------------------------------------------


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()


class AsyncTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS, ids=IDS)
def test_kafka_python(node: SecuredNode, listener: str, mechanism: str) -> None:
    own, topic = for_python(node.way(listener, mechanism)), named("k", listener, mechanism)
    if mechanism.startswith("SCRAM"):  # it cannot send a name with a comma
        own["sasl_plain_username"], own["sasl_plain_password"] = SIMPLE
    if mechanism == "OAUTHBEARER":
        own["sasl_oauth_token_provider"] = Tokens()
    admin = kafka.KafkaAdminClient(**own)
    admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
    admin.close()
    producer = kafka.KafkaProducer(**own)
    for i in range(COUNT):
        producer.send(topic, b"%d" % i)
    producer.flush(CALL_SECONDS_MAX)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **own)
    eventually(lambda: consumer.partitions_for_topic(topic))  # it may join before it knows them
    seen: list[bytes] = []

    def all_seen() -> bool:
        for records in consumer.poll(200).values():
            seen.extend(record.value for record in records)
        return len(seen) == COUNT

    eventually(all_seen, every=0.0)
    consumer.commit()
    consumer.close()
    assert seen == [b"%d" % i for i in range(COUNT)]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS, ids=IDS)
def test_aiokafka(node: SecuredNode, listener: str, mechanism: str) -> None:
    topic = named("a", listener, mechanism)

    async def whole() -> list[bytes]:
        own = for_python(node.way(listener, mechanism))
        if mechanism == "OAUTHBEARER":
            own["sasl_oauth_token_provider"] = AsyncTokens()
        admin = aiokafka.admin.AIOKafkaAdminClient(**own)
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 1)])
        await admin.close()
        async with aiokafka.AIOKafkaProducer(**own) as producer:
            for i in range(COUNT):
                await producer.send_and_wait(topic, b"%d" % i)
        seen: list[bytes] = []
        async with (
            asyncio.timeout(CALL_SECONDS_MAX),
            aiokafka.AIOKafkaConsumer(
                topic, group_id=topic, auto_offset_reset="earliest", **own
            ) as consumer,
        ):
            while len(seen) < COUNT:
                seen.append((await consumer.getone()).value)
            await consumer.commit()
        return seen

    assert asyncio.run(whole()) == [b"%d" % i for i in range(COUNT)]


# -- Apache's Java client --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java(node: SecuredNode, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of each way, all of them in one JVM."""
    token_file = tmp_path_factory.mktemp("tokens") / "token"
    token_file.write_text(token())
    ways = {named("j", *way): (node.way(*way), 0.0) for way in WAYS}
    ways["again"] = (node.way("AGAIN", "SCRAM-SHA-256"), AGAIN_S)
    ways["wrong"] = (node.way("SASL_SSL", "PLAIN") | {"sasl.password": "wrong"}, 0.0)
    ways["nobody"] = (node.way("SASL_SSL", "SCRAM-SHA-512") | {"sasl.username": "no"}, 0.0)
    ways["bare"] = (node.way("SSL") | {"bootstrap.servers": node.at("MTLS")}, 0.0)
    lines = [
        json.dumps({"name": name, "seconds": seconds, "settings": for_java(way, token_file)})
        for name, (way, seconds) in ways.items()
    ]
    program = Path(__file__).parent / "java" / "Secured.java"
    done = subprocess.run(
        java_command(str(program), token_file.as_uri()),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=JAVA_SECONDS_MAX,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(said) == len(ways), f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return {one["name"]: one for one in said}


@pytest.mark.java
@pytest.mark.timeout(JAVA_SECONDS_MAX + 60)
@pytest.mark.parametrize(("listener", "mechanism"), WAYS, ids=IDS)
def test_java(java: dict[str, dict[str, Any]], listener: str, mechanism: str) -> None:
    done = java[named("j", listener, mechanism)]
    assert done["error"] is None
    assert done["sent"] == COUNT


@pytest.mark.java
@pytest.mark.timeout(JAVA_SECONDS_MAX + 60)
def test_java_authenticates_again_under_load(java: dict[str, dict[str, Any]]) -> None:
    assert java["again"]["error"] is None
    assert java["again"]["sent"] > 100


@pytest.mark.java
@pytest.mark.timeout(JAVA_SECONDS_MAX + 60)
def test_java_is_kept_out(java: dict[str, dict[str, Any]]) -> None:
    assert java["wrong"]["error"].startswith("SaslAuthenticationException")
    assert java["nobody"]["error"].startswith("SaslAuthenticationException")
    assert java["bare"]["error"]  # it is hung up on; TLS does not tell it why


# -- sessions that end -----------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_confluent_authenticates_again_under_load(node: SecuredNode, mechanism: str) -> None:
    own, topic = librdkafka(node.way("AGAIN", mechanism)), f"again-{mechanism.lower()}"
    admin = AdminClient(own)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(CALL_SECONDS_MAX)
    before = node.metric("penstock_logins_total", listener="AGAIN", outcome="success")
    failed: list[Any] = []
    offsets: list[int] = []

    def done(error: Any, message: Any) -> None:
        failed.append(error) if error is not None else offsets.append(message.offset())

    producer = Producer({**own, "enable.idempotence": True, "linger.ms": 1})
    end, sent = time.monotonic() + AGAIN_S, 0
    while time.monotonic() < end:
        producer.produce(topic, b"%d" % sent, partition=0, on_delivery=done)
        sent += 1
        producer.poll(0.005)
    assert producer.flush(CALL_SECONDS_MAX) == 0
    assert failed == []
    assert offsets == list(range(sent))
    logins = node.metric("penstock_logins_total", listener="AGAIN", outcome="success") - before
    assert logins >= 3  # the first, and two more
    assert node.metric("penstock_logins_total", listener="AGAIN", outcome="failure") == 0


# -- who is kept out -------------------------------------------------------------------------------


def refusal(own: dict[str, Any]) -> set[int]:
    """The errors of a client that does not get in."""
    codes: list[int] = []
    client = Producer({**own, "error_cb": lambda error: codes.append(error.code())})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    eventually(lambda: client.poll(0.1) or codes)
    return set(codes)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", ["sasl.password", "sasl.username"])
def test_a_wrong_login_is_refused(node: SecuredNode, mechanism: str, wrong: str) -> None:
    own = librdkafka(node.way("SASL_SSL", mechanism) | {wrong: "wrong"})
    assert KafkaError._AUTHENTICATION in refusal(own)


@pytest.mark.parametrize(
    "given",
    [
        token(exp=int(time.time()) - 100),
        token()[:-8] + "AAAAAAAA",
        token().rpartition(".")[0] + ".",
    ],
    ids=["ended", "forged", "unsigned"],
)
def test_a_bad_token_is_refused(node: SecuredNode, given: str) -> None:
    assert KafkaError._AUTHENTICATION in refusal(
        librdkafka(node.way("SASL_SSL", "OAUTHBEARER"), given)
    )


@pytest.mark.parametrize("who", ["none", "ended", "stranger"])
def test_a_bad_certificate_is_refused(node: SecuredNode, who: str) -> None:
    own = node.way("SSL") | {"bootstrap.servers": node.at("MTLS")}
    if who != "none":
        files = node.certificates
        path = files.of_stranger() if who == "stranger" else files.signed("ended", lasts=-DAY)
        own |= {"ssl.certificate.location": str(path), "ssl.key.location": str(path)}
    failed = node.metric("penstock_tls_handshakes_failed_total", listener="MTLS")
    down = {KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
    assert refusal(librdkafka(own)) & down
    assert node.metric("penstock_tls_handshakes_failed_total", listener="MTLS") > failed


def test_a_plain_client_gets_nowhere(node: SecuredNode) -> None:
    for listener in ("SSL", "SASL_SSL", "SASL_PLAINTEXT"):
        refusal(librdkafka({"bootstrap.servers": node.at(listener)}))
    assert node.running


def test_other_clients_are_told_too(node: SecuredNode) -> None:
    own = for_python(node.way("SASL_SSL", "PLAIN") | {"sasl.password": "wrong"})

    async def start() -> None:
        client = aiokafka.AIOKafkaProducer(**own)
        try:
            await client.start()
        finally:
            await client.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(start())
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**own)


# -- Apache's tool ---------------------------------------------------------------------------------


@pytest.mark.java
def test_kafka_configs_makes_changes_and_deletes_users(node: SecuredNode, tmp_path: Path) -> None:
    own = for_java(node.way("SASL_SSL", "PLAIN"), tmp_path / "unused")
    config = tmp_path / "admin.properties"
    lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}" for name, value in own.items())
    config.write_text("\n".join(lines) + "\n")
    at = ("--bootstrap-server", node.at("SASL_SSL"), "--command-config", str(config))
    user = ("--entity-type", "users", "--entity-name", "zoe")
    tools = Tools()
    try:
        for wanted in (
            "SCRAM-SHA-256=[iterations=8192,password=of-zoe]",
            "SCRAM-SHA-512=[password=of-zoe]",
        ):
            tools.output("configs", *at, "--alter", "--add-config", wanted, *user)
        admin = AdminClient(librdkafka(node.way("SASL_SSL", "PLAIN")))
        described = admin.describe_user_scram_credentials(["zoe"])["zoe"].result(CALL_SECONDS_MAX)
        rounds = {i.mechanism.name: i.iterations for i in described.scram_credential_infos}
        assert rounds == {"SCRAM_SHA_256": 8192, "SCRAM_SHA_512": 4096}
        zoe = {"sasl.username": "zoe", "sasl.password": "of-zoe"}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
            own_of_zoe = librdkafka(node.way("SASL_SSL", mechanism) | zoe)
            assert AdminClient(own_of_zoe).list_topics(timeout=CALL_SECONDS_MAX).brokers
        for gone in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            tools.output("configs", *at, "--alter", "--delete-config", gone, *user)
    finally:
        tools.close()
    refused = refusal(librdkafka(node.way("SASL_SSL", "SCRAM-SHA-256") | zoe))
    assert KafkaError._AUTHENTICATION in refused


def test_secrets_are_in_no_log(node: SecuredNode) -> None:
    text = node.log_path.read_text()
    for secret in (PASSWORD, PLAIN_PASSWORD, SIMPLE[1], "of-zoe", "PRIVATE KEY", "eyJ"):
        assert secret not in text
