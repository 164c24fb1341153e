"""The `kafka.*` options of source and sink: one table for both, so that a query may hand the same
ones to either.

Duty: says of every setting of a Kafka client whether it is followed here, has no effect, or is
refused and what to use instead; names of librdkafka become Java's. A name that is in no table is an
error with the nearest one. `docs/kafka-options.md` is made from this table
(`penstock.spark.client_settings_doc`).

A setting of consumers has no effect on the sink, and one of producers none on the source.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from penstock.spark.connection import CLIENT_ID, Client, parse_addresses
from penstock.spark.errors import OptionError
from penstock.spark.security import security_of

BOOTSTRAP: Final = "bootstrap.servers"
NUMBER_MAX: Final = 2**31 - 1

FOLLOWED: Final[dict[str, str]] = {
    BOOTSTRAP: "HOST:PORT of some brokers, separated by commas; must be given",
    "client.id": "the name that brokers write into their logs and metrics",
    "request.timeout.ms": "how long an answer may take (30000)",
    "socket.connection.setup.timeout.ms": "how long connecting may take (10000)",
    "connections.max.idle.ms": "how long an idle connection is kept (540000)",
    "receive.buffer.bytes": "size of a socket's receive buffer; -1 (the default) is the kernel's",
    "send.buffer.bytes": "size of a socket's send buffer; -1 (the default) is the kernel's",
    "default.api.timeout.ms": "source: how long the driver's questions are asked again (30000)",
    "fetch.max.bytes": "source: what one answer holds, but at least one batch (8388608)",
    "max.partition.fetch.bytes": "source: the same, since a request reads one partition;"
    " the smaller one counts",
    "fetch.min.bytes": "source: what a broker waits for before it answers (1)",
    "fetch.max.wait.ms": "source: how long it waits for that (500)",
    "client.rack": "source: where tasks run; they read from a replica there, if brokers have"
    " replica.selector.class",
    "isolation.level": "source: read_committed or read_uncommitted (the default)",
    "group.id": "source: the group to which a stream's progress is committed, for those who watch"
    " its lag; the query itself goes by its checkpoint",
    "acks": "sink: only all, which is how it writes",
    "enable.idempotence": "sink: only true, which is how it writes",
    "compression.type": "sink: none (the default), gzip, snappy, lz4 or zstd",
    "delivery.timeout.ms": "sink: how long an election or a restart of a broker may take (120000)",
    "transaction.timeout.ms": "sink: how long a batch may take from its first row to its commit"
    " (900000)",
    "security.protocol": "PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    "sasl.jaas.config": "a user's name and password, as PlainLoginModule or ScramLoginModule",
    "sasl.username": "the name, where there is no sasl.jaas.config",
    "sasl.password": "the password, where there is no sasl.jaas.config",
    "ssl.truststore.type": "must be PEM where there is an ssl.truststore.location",
    "ssl.truststore.location": "file of the certificates that are trusted; without it and the"
    " next three, those that the machine trusts",
    "ssl.truststore.certificates": "the same certificates in the option itself",
    "ssl.ca.location": "as ssl.truststore.location, by librdkafka's name",
    "ssl.ca.pem": "as ssl.truststore.certificates, by librdkafka's name",
    "ssl.keystore.type": "must be PEM where there is an ssl.keystore.location",
    "ssl.keystore.location": "file of the client's key and certificates",
    "ssl.keystore.certificate.chain": "the client's certificates in the option itself",
    "ssl.keystore.key": "the client's key in the option itself",
    "ssl.certificate.location": "file of the client's certificates, by librdkafka's name",
    "ssl.certificate.pem": "as ssl.keystore.certificate.chain, by librdkafka's name",
    "ssl.key.location": "file of the client's key, by librdkafka's name",
    "ssl.key.pem": "as ssl.keystore.key, by librdkafka's name",
    "ssl.key.password": "the password of the client's key, if it is encrypted",
    "ssl.endpoint.identification.algorithm": "https (the default): the broker's name is in its"
    " certificate; none or empty: it need not be",
    "enable.ssl.certificate.verification": "false trusts any certificate",
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3 or both",
    "ssl.cipher.suites": "ciphers of TLSv1.2, by OpenSSL's names",
}

_BY_TABLE = "a query is neither a member nor a poll loop"
_AT_ONCE = "Spark's Arrow batches decide how much is sent at once"
_AGAIN = "what may pass is tried again at rising intervals until a time-out is over"
_LEADERS = "leaders are asked for by each task and when they move, partitions by each micro-batch"
_METRICS = "no metrics of a client are kept; Spark has the query's"
UNUSED: Final[dict[str, str]] = {
    "client.dns.lookup": "all addresses of a name are tried",
    "metadata.max.age.ms": _LEADERS,
    "metadata.recovery.strategy": _LEADERS,
    "topic.metadata.refresh.interval.ms": _LEADERS,
    "retries": _AGAIN,
    "retry.backoff.ms": _AGAIN,
    "retry.backoff.max.ms": _AGAIN,
    "reconnect.backoff.ms": _AGAIN,
    "reconnect.backoff.max.ms": _AGAIN,
    "socket.connection.setup.timeout.max.ms": _AGAIN,
    "socket.keepalive.enable": "connections live about as long as a task",
    "socket.nagle.disable": "it is off",
    "broker.address.family": "all addresses of a name are tried",
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "enable.metrics.push": _METRICS,
    "statistics.interval.ms": _METRICS,
    "ssl.protocol": "ssl.enabled.protocols says it",
    "ssl.truststore.password": "PEM has none",
    "ssl.keystore.password": "PEM has none; ssl.key.password is the key's",
    "check.crcs": "they are checked",
    "max.poll.records": _BY_TABLE,
    "max.poll.interval.ms": _BY_TABLE,
    "session.timeout.ms": _BY_TABLE,
    "heartbeat.interval.ms": _BY_TABLE,
    "partition.assignment.strategy": _BY_TABLE,
    "group.instance.id": _BY_TABLE,
    "group.protocol": _BY_TABLE,
    "auto.commit.interval.ms": _BY_TABLE,
    "allow.auto.create.topics": "nothing makes topics",
    "exclude.internal.topics": "a pattern matches no internal topic; name it with subscribe",
    "queued.min.messages": "one answer is decoded while the next is under way",
    "queued.max.messages.kbytes": "one answer is decoded while the next is under way",
    "fetch.queue.backoff.ms": "one answer is decoded while the next is under way",
    "linger.ms": _AT_ONCE,
    "batch.size": _AT_ONCE,
    "batch.num.messages": _AT_ONCE,
    "buffer.memory": _AT_ONCE,
    "max.block.ms": "delivery.timeout.ms says it",
    "max.request.size": "a request holds 8 MiB; for a row the topic's max.message.bytes counts",
    "max.in.flight.requests.per.connection": "it is one for each leader",
    "compression.gzip.level": "each codec has its own default",
    "compression.lz4.level": "each codec has its own default",
    "compression.zstd.level": "each codec has its own default",
    "transaction.two.phase.commit.enable": "the sink has a way of its own to commit",
}

_CAST = "cast the column with Spark's functions"
_OWN_CODE = "classes of Java cannot be run here; transform the DataFrame"
REFUSED: Final[dict[str, str]] = {
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.auto.commit": "Spark's checkpoint keeps the progress; kafka.group.id shows it",
    "enable.auto.offset.store": "Spark's checkpoint keeps the progress",
    "key.deserializer": f"keys are binary; {_CAST}",
    "value.deserializer": f"values are binary; {_CAST}",
    "key.serializer": f"keys are strings or binary; {_CAST}",
    "value.serializer": f"values are strings or binary; {_CAST}",
    "interceptor.classes": _OWN_CODE,
    "partitioner.class": "give the rows a column partition",
    "partitioner": "give the rows a column partition",
    "transactional.id": "the sink names its transactions; option transactionalIdPrefix begins them",
    "config.providers": "give the values themselves, from Spark's configuration or the environment",
    "security.providers": _OWN_CODE,
    "sasl.client.callback.handler.class": _OWN_CODE,
    "sasl.login.callback.handler.class": _OWN_CODE,
    "sasl.login.class": _OWN_CODE,
    "ssl.engine.factory.class": _OWN_CODE,
    "ssl.crl.location": "revoked certificates are not looked up",
}
_SPARKS_OWN = 'cannot be had here; use Spark\'s own Kafka connector, format("kafka")'
REFUSED_FAMILIES: Final[dict[str, str]] = {
    "sasl.kerberos.": f"Kerberos {_SPARKS_OWN}",
    "sasl.oauthbearer.": f"OAuth {_SPARKS_OWN}",
}

ALIASES: Final[dict[str, str]] = {
    "metadata.broker.list": BOOTSTRAP,
    "sasl.mechanisms": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
}
"""librdkafka's names for what has another one in Java."""


def checked(given: Mapping[str, str]) -> dict[str, str]:
    """The settings by Java's names; one that is unknown or refused is an error."""
    found: dict[str, str] = {}
    for name, value in given.items():
        _check_name(name)
        true_name = ALIASES.get(name, name)
        if found.setdefault(true_name, value) != value:
            raise OptionError(
                f"options kafka.{name} and kafka.{true_name} are two names for one setting, and"
                " have different values: give one of them"
            )
    if BOOTSTRAP not in found:
        raise OptionError(f"option kafka.{BOOTSTRAP} is missing: say HOST:PORT of the cluster")
    try:
        parse_addresses(found[BOOTSTRAP])
    except ValueError as e:
        raise OptionError(
            f"option kafka.{BOOTSTRAP} must be HOST:PORT, or several separated by commas: {e}"
        ) from None
    return found


def _check_name(name: str) -> None:
    if name in FOLLOWED or name in UNUSED or name in ALIASES:
        return
    family = next((f for f in REFUSED_FAMILIES if name.startswith(f)), None)
    instead = REFUSED_FAMILIES[family] if family else REFUSED.get(name)
    if instead is not None:
        raise OptionError(f"option kafka.{name} is not supported: {instead}")
    near = difflib.get_close_matches(name, [*FOLLOWED, *UNUSED, *ALIASES], n=1)
    hint = f" (did you mean kafka.{near[0]}?)" if near else ""
    raise OptionError(
        f"unknown option kafka.{name}{hint}; the settings of Kafka's clients that are known here"
        " are in docs/kafka-options.md"
    )


def number(kafka: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    """A setting that is a whole number, of milliseconds or bytes as its name says."""
    text = kafka.get(name, str(default)).strip()
    if not re.fullmatch(r"-?[0-9]{1,10}", text) or not least <= int(text) <= NUMBER_MAX:
        unit = "milliseconds" if name.endswith(".ms") else "bytes"
        raise OptionError(
            f"option kafka.{name} must be {unit}, a whole number from {least}, not {text!r}"
        )
    return int(text)


def client_of(kafka: Mapping[str, str]) -> Client:
    """How to connect, from settings that are `checked`."""
    ours = Client()
    return Client(
        client_id=kafka.get("client.id", CLIENT_ID),
        security=security_of(kafka),
        connect_s=_seconds(kafka, "socket.connection.setup.timeout.ms", ours.connect_s),
        answer_s=_seconds(kafka, "request.timeout.ms", ours.answer_s),
        idle_s=_seconds(kafka, "connections.max.idle.ms", ours.idle_s),
        receive_buffer_bytes=number(kafka, "receive.buffer.bytes", -1, least=-1),
        send_buffer_bytes=number(kafka, "send.buffer.bytes", -1, least=-1),
    )


def _seconds(kafka: Mapping[str, str], name: str, default_s: float) -> float:
    return number(kafka, name, int(default_s * 1000)) / 1000
