"""What a query's driver asks the cluster: topics, offsets, offsets by time; and where it notes
progress.

Everything goes through one confluent-kafka client, made when it is first needed, with the query's
`kafka.*` settings, so that all of its security works. Each question waits at most `ANSWER_S_MAX`.
Owned by the driver's Python worker and its only thread; it is never pickled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property
from typing import Any

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
_CLIENT_LOG = logging.getLogger("penstock.spark.librdkafka")
_CLIENT_LOG.addHandler(logging.NullHandler())
_CLIENT_LOG.propagate = False

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

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

    @cached_property
    def _client(self) -> AdminClient:
        try:
            return AdminClient(client_settings(self._options.kafka))
        except KafkaException as e:
            raise OptionError(
                f"a kafka.* option is refused by the client: {e.args[0].str()}; the names and"
                " values are those of confluent-kafka (librdkafka), with kafka. before them"
            ) from None

    def partitions(self) -> list[Partition]:
        """Every partition that the query reads; topics it names must exist."""
        options = self._options
        names = options.topics or tuple(sorted({topic for topic, _ in options.assigned}))
        topics = self._topics()
        for name in names:
            if name not in topics:
                raise ClusterError(
                    f"topic {name} ({options.subscription}) does not exist on {self.bootstrap};"
                    " make it, or correct the option"
                )
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = tuple(name for name in topics if pattern.fullmatch(name))
        there = [(name, p) for name in names for p in topics[name].partitions]
        if not options.assigned:
            return sorted(there)
        if missing := sorted(options.assigned - set(there)):
            raise ClusterError(
                f"topic {missing[0][0]} has no partition {missing[0][1]}, which option assign names"
            )
        return sorted(options.assigned)

    def _topics(self) -> dict[str, TopicMetadata]:
        try:
            return dict(self._client.list_topics(timeout=ANSWER_S_MAX).topics)
        except KafkaException as e:
            raise self._sentence(e.args[0], "list topics") from None

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
        futures = self._client.list_offsets(
            {TopicPartition(*partition): spec for partition, spec in wanted.items()},
            isolation_level=level,
            request_timeout=ANSWER_S_MAX,
        )
        return {
            (place.topic, place.partition): self._wait(
                future, f"read the offsets of topic {place.topic} partition {place.partition}"
            ).offset
            for place, future in futures.items()
        }

    def note_progress(self, group: str, offsets: Offsets) -> None:
        """Commits offsets to a group, for those who watch its lag. The query does not depend on
        them, so a failure is logged and nothing more.
        """
        places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(group, places)
        futures = self._client.alter_consumer_group_offsets([request], request_timeout=ANSWER_S_MAX)
        try:
            for future in futures.values():
                self._wait(future, f"commit progress to group {group}")
        except ClusterError as e:
            log.warning("%s; the query goes on, its checkpoint is what counts", e)

    def _wait(self, future: Future[Any], doing: str) -> Any:
        try:
            return future.result(ANSWER_S_MAX + 1)
        except KafkaException as e:
            raise self._sentence(e.args[0], doing) from None
        except FutureTimeout:
            raise self._no_answer(doing) from None

    def _sentence(self, error: KafkaError, doing: str) -> ClusterError:
        if error.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
            return self._no_answer(doing)
        return ClusterError(f"cannot {doing} on {self.bootstrap}: {error.str()} ({error.name()})")

    def _no_answer(self, doing: str) -> ClusterError:
        return ClusterError(
            f"cannot {doing}: no answer from {self.bootstrap} (option kafka.bootstrap.servers)"
            f" within {ANSWER_S_MAX:g} s; see whether the cluster runs, and whether kafka.* options"
            " for security are those it wants"
        )
