"""The Kafka client of the command line (confluent-kafka), and its errors as sentences.

Everything here works against any Kafka cluster, secured or not: a connection that speaks the
protocol itself is opened first, since it says at once what librdkafka would try again and again
(nobody listens, TLS, a wrong password). Each wait is bounded by `--timeout`; librdkafka's own log
lines never reach the terminal. This module imports confluent-kafka: only modules of commands may
import it, never one that lists them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from penstock.cli.access import Access
from penstock.cli.errors import CliError, did_you_mean, usage_error
from penstock.kafka.brokers import Brokers
from penstock.kafka.client import Address, unreachable, why
from penstock.kafka.connection import Connection
from penstock.kafka.errors import ClusterError, SecurityError
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

__all__ = [
    "AdminClient",
    "AlterConfigOpType",
    "Cluster",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "NewPartitions",
    "NewTopic",
    "ResourceType",
    "TopicDescription",
    "TopicMetadata",
    "pick_partitions",
]

METADATA_VERSION = 4
"""Served by every broker since 0.11."""
GREETING_S_MAX = 2.0
"""A broker that is alive answers the first request at once."""
BROKERS_PROBED_MAX = 16
_T = TypeVar("_T")
_C = TypeVar("_C", AdminClient, Producer, Consumer, ShareConsumer)

_LOG = logging.getLogger("penstock.cli.librdkafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False

_ADVICE = {
    "TOPIC_ALREADY_EXISTS": "choose another name, or add --if-not-exists",
    "TOPIC_EXCEPTION": "choose another name",
    "INVALID_PARTITIONS": "give a larger number of partitions",
    "INVALID_REPLICATION_FACTOR": "give -r no more than there are brokers",
    "INVALID_CONFIG": "correct it with -c KEY=VALUE",
    "UNKNOWN_TOPIC_OR_PART": "see `penstock topic list`",
    "POLICY_VIOLATION": "the broker's policy forbids it",
    "TOPIC_AUTHORIZATION_FAILED": "ask for access to the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "ask for access to the cluster",
    "OFFSET_OUT_OF_RANGE": "see the offsets with `penstock topic describe`",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic, or send smaller messages",
    "KAFKA_STORAGE_ERROR": "look at the broker's log: its disk is full or failing",
}
_UNREACHABLE = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_RESOLVE"}


class Cluster:
    """One cluster as a command sees it: who to ask, and how long to wait for each answer."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.bootstrap = access.bootstrap
        self.timeout_s = access.timeout_s
        self.reached = _first_reachable(access)
        self._defaults: dict[str, Any] = {
            "client.id": access.client.client_id,
            "socket.timeout.ms": max(10, int(self.timeout_s * 1000)),
            "socket.connection.setup.timeout.ms": max(1000, int(self.timeout_s * 1000)),
            "reconnect.backoff.ms": 10,
            "socket.nagle.disable": True,
        }
        if "localhost" in self.bootstrap:  # two addresses, and only one of them may listen
            is_v6 = self.reached.family == socket.AF_INET6
            self._defaults["broker.address.family"] = "v6" if is_v6 else "v4"

    def admin(self) -> AdminClient:
        return self._made(AdminClient, {})

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        return self._made(Producer, settings)

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        return self._made(Consumer, settings)

    def share_consumer(self, settings: Mapping[str, Any]) -> ShareConsumer:
        return self._made(ShareConsumer, settings)

    def _made(self, kind: Callable[[dict[str, Any]], _C], settings: Mapping[str, Any]) -> _C:
        """A client; what the user gave counts above what the command would have."""
        ours = {"logger": _LOG, "error_cb": _ignore}
        try:
            return kind({**self._defaults, **settings, **self.access.config, **ours})
        except KafkaException as e:
            text = e.args[0].str().rstrip(".")
        except ValueError as e:  # so says a share consumer
            text = str(e).removeprefix("Failed to create share consumer: ").rstrip(".")
        raise usage_error(f"a setting of the Kafka client is wrong: {text}")

    def coordinator(self, kind: int, key: str, doing: str) -> Address:
        """Where a group or a transactional id is coordinated."""
        client = self.access.client
        try:
            with Brokers(self.access.addresses, self.timeout_s, client) as brokers:
                return brokers.coordinator(kind, key)
        except SecurityError:
            raise
        except ClusterError as e:
            raise CliError(
                f"cannot {doing}: {e}; try again, or wait longer with --timeout"
            ) from None

    def wait(self, future: Future[_T], doing: str) -> _T:
        """The result of an admin call, or its error as a sentence that begins with what was
        `doing`.
        """
        try:
            return future.result(self.timeout_s + 1)
        except KafkaException as e:
            raise self.sentence(e.args[0], doing) from None
        except FutureTimeout:
            raise self.no_answer(doing) from None

    def sentence(self, error: KafkaError, doing: str) -> CliError:
        """What a client's error means to the person who typed the command."""
        name = error.name()
        if name in _UNREACHABLE:
            return self.no_answer(doing)
        text = (error.str() or name).strip().rstrip(".")
        advice = _ADVICE.get(name)
        return CliError(f"cannot {doing}: {text}" + (f"; {advice}" if advice else f" ({name})"))

    def no_answer(self, doing: str) -> CliError:
        """The sentence of a wait that was in vain."""
        if silent := self._silent_brokers():
            return CliError(
                f"cannot {doing}: {'; '.join(silent)}; start the broker, or correct its"
                " advertised.listeners if clients cannot use that address"
            )
        return CliError(
            f"cannot {doing}: no answer from {self.bootstrap} within {self.timeout_s:g} s; check"
            " that a Kafka listener is at that address, or wait longer with --timeout"
        )

    def _silent_brokers(self) -> list[str]:
        """Which brokers of the cluster do not answer where they are advertised."""
        greeting_s = min(GREETING_S_MAX, self.timeout_s)
        client = replace(self.access.client, connect_s=greeting_s, answer_s=greeting_s)

        def trouble(id_: int, at: Address) -> str:
            try:
                Connection(at, client).close()
            except (OSError, ClusterError) as e:
                said = why(e) if isinstance(e, OSError) else str(e)
                return unreachable(f"broker {id_}", at, said)
            return ""

        try:
            with Connection(self.reached.address, client) as connection:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                answer = connection.call(request, MetadataResponse, METADATA_VERSION)
        except OSError:
            return []
        told = sorted((b.node_id, (b.host, b.port)) for b in answer.brokers)[:BROKERS_PROBED_MAX]
        with ThreadPoolExecutor(BROKERS_PROBED_MAX) as pool:
            return [text for text in pool.map(lambda at: trouble(*at), told) if text]

    def topics(self, admin: AdminClient) -> dict[str, TopicMetadata]:
        """Every topic of the cluster by name."""
        try:
            return dict(admin.list_topics(timeout=self.timeout_s).topics)
        except KafkaException as e:
            raise self.sentence(e.args[0], "list topics") from None

    def topic(self, admin: AdminClient, name: str) -> TopicMetadata:
        """The metadata of `name`, or the sentence that it does not exist."""
        topics = self.topics(admin)
        if name not in topics:
            raise self.missing_topic(name, topics)
        found = topics[name]
        if not found.partitions:  # with none, a command would do nothing and call it done
            error = found.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            raise self.sentence(error, f"use topic {name!r}")
        return found

    def missing_topic(self, name: str, topics: Mapping[str, Any], advice: str = "") -> CliError:
        advice = (
            advice or f"see `penstock topic list`, or make it with `penstock topic create {name}`"
        )
        return CliError(
            f"topic {name!r} does not exist on {self.bootstrap}"
            f"{did_you_mean(name, topics)}: {advice}"
        )


def pick_partitions(name: str, topic: TopicMetadata, partition: int | None) -> list[int]:
    """All partitions of `topic`, or the one that was asked for."""
    known = sorted(topic.partitions)
    if partition is None:
        return known
    if partition not in topic.partitions:
        raise CliError(
            f"topic {name!r} has no partition {partition}:"
            f" give --partition from 0 to {len(known) - 1}"
        )
    return [partition]


def _ignore(_error: KafkaError) -> None:
    """Errors come back from the calls that suffer them; librdkafka's general ones would only
    repeat them.
    """


class Reached(NamedTuple):
    """A broker that can be reached, and by which address family."""

    address: Address
    family: int


def _first_reachable(access: Access) -> Reached:
    """The first broker that answers. If some are reached and none answers, the first of them: that
    is left to the command, which says so when its time is over.
    """
    silent: Reached | None = None
    reason = ""
    advice = "start one with `penstock serve`, or name another with --bootstrap HOST:PORT"
    for address in access.addresses:
        try:
            with Connection(address, access.client) as connection:
                reached = Reached(address, connection.family)
                if _answers(connection, min(GREETING_S_MAX, access.timeout_s)):
                    return reached
                silent = silent or reached
        except OSError as e:
            reason = why(e)
            if e.strerror is None:
                advice = "say how it is secured, with -X, --config or the environment"
    if silent is not None:
        return silent
    raise CliError(f"cannot reach a broker at {access.bootstrap} ({reason}): {advice}")


def _answers(connection: Connection, timeout_s: float) -> bool:
    connection.wait_at_most(timeout_s)
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        connection.call(request, MetadataResponse, METADATA_VERSION)
    except TimeoutError:
        return False
    return True
