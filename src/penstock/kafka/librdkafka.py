"""What settings mean to librdkafka, the client below confluent-kafka; no import of it is needed.

Duty: a configuration for confluent-kafka that connects as `kafka.connection` does with the same
settings. What is about the connection is translated from what `security_of` and `client_of` have
read, so that both clients follow one reading; what is about producers and consumers is handed on.

Limits: librdkafka has no setting for the versions of TLS: `ssl.enabled.protocols` counts for the
connections of `kafka.connection` alone.
"""

from __future__ import annotations

from typing import Final

from penstock.kafka.security import Pem, Security, Tls
from penstock.kafka.settings import FOLLOWED, Settings, Vocabulary
from penstock.kafka.spelling import PLAIN_SPELLING

HANDED_ON: Final = frozenset(
    (
        "allow.auto.create.topics",
        "api.version.request",
        "api.version.request.timeout.ms",
        "batch.num.messages",
        "batch.size",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "compression.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "enable.metrics.push",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "message.copy.max.bytes",
        "message.max.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "partitioner",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "sticky.partitioning.linger.ms",
        "topic.metadata.refresh.interval.ms",
    )
)
"""What is not about the connection and means what librdkafka's documentation says."""

_OPTION: Final = "the command's own options say it"
_NO_GROUP: Final = "the command is no member of a group"
_NO_CODE: Final = "classes of Java are not run here"
_NOT_SHOWN: Final = "the client's log and metrics are not shown"
WITHOUT_EFFECT: Final[dict[str, str]] = {
    "acks": _OPTION,
    "compression.type": _OPTION,
    "auto.offset.reset": _OPTION,
    "isolation.level": _OPTION,
    "default.api.timeout.ms": "--timeout says it",
    "group.id": _NO_GROUP,
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "session.timeout.ms": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "max.poll.records": _NO_GROUP,
    "partition.assignment.strategy": _NO_GROUP,
    "enable.auto.commit": _NO_GROUP,
    "enable.auto.offset.store": _NO_GROUP,
    "auto.commit.interval.ms": _NO_GROUP,
    "key.serializer": _NO_CODE,
    "value.serializer": _NO_CODE,
    "key.deserializer": _NO_CODE,
    "value.deserializer": _NO_CODE,
    "interceptor.classes": _NO_CODE,
    "partitioner.class": _NO_CODE,
    "metric.reporters": _NOT_SHOWN,
    "statistics.interval.ms": _NOT_SHOWN,
    "debug": _NOT_SHOWN,
    "log_level": _NOT_SHOWN,
    "buffer.memory": "queue.buffering.max.kbytes says it",
    "max.request.size": "message.max.bytes says it",
    "max.block.ms": "--timeout says it",
    "transaction.timeout.ms": "no transaction is begun",
    "transactional.id": "no transaction is begun",
}
VOCABULARY: Final = Vocabulary(
    PLAIN_SPELLING, HANDED_ON, WITHOUT_EFFECT, {}, "docs/cli.md and docs/kafka-options.md"
)
_BY_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")
_OWN_NAMES: Final = {
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}
"""Where librdkafka does not take Java's name, or means something else by it."""


def config_of(settings: Settings, security: Security) -> dict[str, str]:
    """A configuration for confluent-kafka, of what is given and nothing else."""
    found = {
        _OWN_NAMES.get(name, name): value
        for name, value in settings.values.items()
        if (name in FOLLOWED or name in HANDED_ON) and not name.startswith(_BY_SECURITY)
    }
    for name in ("socket.receive.buffer.bytes", "socket.send.buffer.bytes"):
        if found.get(name) == "-1":  # librdkafka's 0 is the kernel's size
            found[name] = "0"
    return found | _security_config(security)


def _security_config(security: Security) -> dict[str, str]:
    found = {"security.protocol": security.protocol}
    if (sasl := security.sasl) is not None:
        found |= {
            "sasl.mechanism": sasl.mechanism,
            "sasl.username": sasl.username,
            "sasl.password": sasl.password,
        }
    return found if security.tls is None else found | _tls_config(security.tls)


def _tls_config(tls: Tls) -> dict[str, str]:
    found = {
        "enable.ssl.certificate.verification": str(tls.verify).lower(),
        "ssl.endpoint.identification.algorithm": "https" if tls.verify_host else "none",
        **_pem("ssl.ca", tls.trust),
        **_pem("ssl.certificate", tls.chain),
        **_pem("ssl.key", tls.key),
    }
    if tls.key_password:
        found["ssl.key.password"] = tls.key_password
    if tls.ciphers is not None:
        found["ssl.cipher.suites"] = tls.ciphers.replace(",", ":")
    return found


def _pem(family: str, pem: Pem | None) -> dict[str, str]:
    if pem is None:
        return {}
    if pem.location is not None:
        return {f"{family}.location": pem.location}
    return {f"{family}.pem": pem.in_lines()}
