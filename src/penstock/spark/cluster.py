"""What a query's driver asks the cluster: topics, offsets, offsets by time; and where it notes
progress.

Everything goes through one confluent-kafka client, made when it is first needed, with the query's
`kafka.*` settings, so that all of its security works. A question that meets a broker which dies or
a leader that moves is asked again, for `ANSWER_S_MAX` altogether. Owned by the driver's Python
worker and its only thread; it is never pickled.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    AdminClient,
    OffsetSpec,
    TopicMetadata,
)

from penstock.spark.errors import ClusterError, OptionError
from penstock.spark.fetch import CLIENT_ID
from penstock.spark.offsets import Offsets, Partition
from penstock.spark.options import SourceOptions

ANSWER_S_MAX = 30.0
RETRY_PAUSE_S = 0.1
_UNREACHABLE = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})
_PASSING = frozenset(
    {
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
    }
)
"""What a cluster says while leaders move."""
_CLIENT_LOG = logging.getLogger("penstock.spark.librdkafka")
_CLIENT_LOG.addHandler(logging.NullHandler())
_CLIENT_LOG.propagate = False

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_T = TypeVar("_T")

log = logging.getLogger(__name__)


def client_settings(kafka: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Settings of a confluent-kafka client: the query's own over ours."""
    ours: dict[str, Any] = {
        "client.id": CLIENT_ID,
        "logger": _CLIENT_LOG,
        "reconnect.backoff.ms": 20,
        "socket.nagle.disable": True,
        "broker.address.family": "v4" if "localhost" in kafka["bootstrap.servers"] else "any",
    }
    return {**ours, **kafka, **more}


class Cluster:
    """One cluster, as one query sees it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.bootstrap = options.kafka["bootstrap.servers"]
        self.brokers: tuple[str, ...] = ()
        """The brokers that were there when topics were last asked for."""

    @cached_property
    def _client(self) -> AdminClient:
        try:
            return AdminClient(client_settings(self._options.kafka))
        except KafkaException as e:
            raise OptionError(
                f"a kafka.* option is refused by the client: {e.args[0].str()}; the names and"
                " values are those of confluent-kafka (librdkafka), with kafka. before them"
            ) from None

    def partitions(self, *, missing_ok: bool = False) -> list[Partition]:
        """Every partition that the query reads; what it names must exist, unless `missing_ok`."""
        options = self._options
        names = options.topics or tuple(sorted({topic for topic, _ in options.assigned}))
        topics = self._topics()
        for name in () if missing_ok else names:
            if name not in topics:
                raise ClusterError(
                    f"topic {name} ({options.subscription}) does not exist on {self.bootstrap};"
                    " make it, or correct the option"
                )
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = tuple(name for name in topics if pattern.fullmatch(name))
        there = {(name, p) for name in names if name in topics for p in topics[name].partitions}
        if not options.assigned:
            return sorted(there)
        if not missing_ok and (missing := sorted(options.assigned - there)):
            raise ClusterError(
                f"topic {missing[0][0]} has no partition {missing[0][1]}, which option assign names"
            )
        return sorted(options.assigned & there)

    def _topics(self) -> dict[str, TopicMetadata]:
        answer = self._patiently(
            "list topics", lambda: self._client.list_topics(timeout=ANSWER_S_MAX)
        )
        self.brokers = tuple(f"{b.host}:{b.port}" for b in answer.brokers.values())
        return dict(answer.topics)

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        """Where each partition begins."""
        return self._offsets(dict.fromkeys(partitions, _EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        """Where each partition ends; for readers of committed data, where that ends."""
        return self._offsets(dict.fromkeys(partitions, _LATEST))

    def at_times(self, times_ms: Mapping[Partition, int]) -> Offsets:
        """The first offset of that time or later in each partition; -1 where there is none."""
        return self._offsets({p: OffsetSpec.for_timestamp(ms) for p, ms in times_ms.items()})

    def _offsets(self, wanted: Mapping[Partition, OffsetSpec]) -> Offsets:
        if not wanted:
            return {}
        level = IsolationLevel.READ_UNCOMMITTED
        if self._options.committed:
            level = IsolationLevel.READ_COMMITTED
        places = {TopicPartition(*partition): spec for partition, spec in wanted.items()}

        def ask() -> Offsets:
            futures = self._client.list_offsets(
                places, isolation_level=level, request_timeout=ANSWER_S_MAX
            )
            return {
                (place.topic, place.partition): future.result(ANSWER_S_MAX + 1).offset
                for place, future in futures.items()
            }

        topics = ", ".join(sorted({topic for topic, _ in wanted}))
        return self._patiently(f"read the offsets of topic {topics}", ask)

    def note_progress(self, group: str, offsets: Offsets) -> None:
        """Commits offsets to a group, for those who watch its lag. The query does not depend on
        them, so a failure is logged and nothing more.
        """
        places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(group, places)

        def ask() -> None:
            futures = self._client.alter_consumer_group_offsets(
                [request], request_timeout=ANSWER_S_MAX
            )
            for future in futures.values():
                future.result(ANSWER_S_MAX + 1)

        try:
            self._patiently(f"commit progress to group {group}", ask)
        except ClusterError as e:
            log.warning("%s; the query goes on, its checkpoint is what counts", e)

    def _patiently(self, doing: str, ask: Callable[[], _T]) -> _T:
        """The answer to a question, or its error as a sentence that begins with what was
        `doing`.
        """
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                return ask()
            except FutureTimeout:
                raise self._no_answer(doing) from None
            except KafkaException as e:
                error: KafkaError = e.args[0]
            unreachable = error.name() in _UNREACHABLE
            if time.monotonic() > deadline and unreachable:
                raise self._no_answer(doing)
            if time.monotonic() > deadline or not (unreachable or error.name() in _PASSING):
                raise ClusterError(
                    f"cannot {doing} on {self.bootstrap}: {error.str()} ({error.name()})"
                )
            time.sleep(RETRY_PAUSE_S)

    def _no_answer(self, doing: str) -> ClusterError:
        return ClusterError(
            f"cannot {doing}: no answer from {self.bootstrap} (option kafka.bootstrap.servers)"
            f" within {ANSWER_S_MAX:g} s; see whether the cluster runs, and whether kafka.* options"
            " for security are those it wants"
        )
