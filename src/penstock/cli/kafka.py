"""The Kafka client of the command line (confluent-kafka), and its errors as sentences.

Everything here works against any Kafka cluster. Each wait is bounded by `--timeout`;
librdkafka's own log lines never reach the terminal. This module imports confluent-kafka: only
modules of commands may import it, never one that lists them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from penstock.cli.errors import CliError, did_you_mean, usage_error

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
    "parse_addresses",
    "pick_partitions",
]

PORT_DEFAULT = 9092
_T = TypeVar("_T")

_LOG = logging.getLogger("penstock.cli.librdkafka")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False

_ADVICE = {
    "TOPIC_ALREADY_EXISTS": "choose another name, or add --if-not-exists",
    "TOPIC_EXCEPTION": "choose another name",
    "INVALID_PARTITIONS": "give a larger number of partitions",
    "INVALID_REPLICATION_FACTOR": "give -r no more than there are brokers",
    "INVALID_CONFIG": "correct it with --config KEY=VALUE",
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

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        family = _first_reachable(bootstrap, timeout_s)
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": "penstock-cli",
            "logger": _LOG,
            "error_cb": _ignore,
            "socket.timeout.ms": max(10, int(timeout_s * 1000)),
            "socket.connection.setup.timeout.ms": max(1000, int(timeout_s * 1000)),
            "reconnect.backoff.ms": 10,
            "socket.nagle.disable": True,
        }
        if "localhost" in bootstrap:  # it names two addresses, and only one of them may listen
            self._settings["broker.address.family"] = "v6" if family == socket.AF_INET6 else "v4"

    def settings(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """Settings for a producer or a consumer of this cluster."""
        return {**self._settings, **more}

    def admin(self) -> AdminClient:
        return AdminClient(self._settings)

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
        return CliError(
            f"cannot {doing}: no answer from {self.bootstrap} within {self.timeout_s:g} s; check"
            " that a Kafka listener is at that address, or wait longer with --timeout"
        )

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
        return topics[name]

    def missing_topic(self, name: str, topics: Mapping[str, Any], advice: str = "") -> CliError:
        advice = (
            advice or f"see `penstock topic list`, or make it with `penstock topic create {name}`"
        )
        return CliError(
            f"topic {name!r} does not exist on {self.bootstrap}"
            f"{did_you_mean(name, topics)}: {advice}"
        )

    def earliest(self, admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, int]:
        """The start offset of each partition."""
        return self._offsets(admin, topic, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def latest(self, admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, int]:
        """The end offset of each partition: the one that the next message will get."""
        return self._offsets(admin, topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def at_time(
        self, admin: AdminClient, topic: str, partitions: list[int], time_ms: int
    ) -> dict[int, int]:
        """The first offset whose timestamp is `time_ms` or later; -1 where there is none."""
        return self._offsets(admin, topic, partitions, OffsetSpec.for_timestamp(time_ms))

    def _offsets(
        self, admin: AdminClient, topic: str, partitions: list[int], spec: OffsetSpec
    ) -> dict[int, int]:
        if not partitions:
            return {}
        wanted = {TopicPartition(topic, p): spec for p in partitions}
        futures = admin.list_offsets(wanted, request_timeout=self.timeout_s)
        doing = f"read the offsets of {topic!r}"
        return {tp.partition: self.wait(future, doing).offset for tp, future in futures.items()}


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


def parse_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """HOST:PORT pairs of a bootstrap list."""
    addresses = []
    for item in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, colon, port = item.rpartition(":")
        if not colon or item.endswith("]"):
            host, port = item, str(PORT_DEFAULT)
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise usage_error(f"{item!r} is not an address: write --bootstrap HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise usage_error("no broker is named: write --bootstrap HOST:PORT")
    return addresses


def _first_reachable(bootstrap: str, timeout_s: float) -> int:
    """The address family by which a broker can be reached; a plain connection finds out far sooner
    than the client would.
    """
    reason = ""
    for address in parse_addresses(bootstrap):
        try:
            with socket.create_connection(address, timeout=timeout_s) as connection:
                return int(connection.family)
        except OSError as e:
            reason = (e.strerror or str(e)).lower()
    raise CliError(
        f"cannot reach a broker at {bootstrap} ({reason}): start one with `penstock serve`,"
        " or name another with --bootstrap HOST:PORT"
    )
