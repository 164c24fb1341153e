"""The `kafka.*` options of source and sink: one table for both, so that a query may hand the same
ones to either.

Duty: says of every setting of a Kafka client that is not about the connection whether it is
followed here, has no effect, or is refused and what to use instead; those of the connection are in
`penstock.kafka.settings`. `docs/kafka-options.md` is made from both
(`penstock.spark.client_settings_doc`).

A setting of consumers has no effect on the sink, and one of producers none on the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.kafka.client import Client
from penstock.kafka.settings import Settings, Vocabulary, bootstrap_of, client_of
from penstock.kafka.spelling import Spelling

CLIENT_ID: Final = "penstock-spark"
SPELLING: Final = Spelling("option", "kafka.", 'use Spark\'s own Kafka connector, format("kafka")')

FOLLOWED: Final[dict[str, str]] = {
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
REFUSED: Final[dict[str, str]] = {
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.auto.commit": "Spark's checkpoint keeps the progress; kafka.group.id shows it",
    "enable.auto.offset.store": "Spark's checkpoint keeps the progress",
    "key.deserializer": f"keys are binary; {_CAST}",
    "value.deserializer": f"values are binary; {_CAST}",
    "key.serializer": f"keys are strings or binary; {_CAST}",
    "value.serializer": f"values are strings or binary; {_CAST}",
    "interceptor.classes": "classes of Java cannot be run here; transform the DataFrame",
    "partitioner.class": "give the rows a column partition",
    "partitioner": "give the rows a column partition",
    "transactional.id": "the sink names its transactions; option transactionalIdPrefix begins them",
}

VOCABULARY: Final = Vocabulary(SPELLING, FOLLOWED, UNUSED, REFUSED, "docs/kafka-options.md")


def checked(given: Mapping[str, str]) -> Settings:
    """The settings without their prefix; brokers must be among them."""
    settings = VOCABULARY.checked(given)
    bootstrap_of(settings)
    return settings


def spark_client(settings: Settings) -> Client:
    """How source and sink connect."""
    return client_of(settings, Client(CLIENT_ID))
