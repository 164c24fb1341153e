"""What a query's driver asks the cluster: topics, offsets, offsets by time; and where it notes
progress.

A question that meets a broker which dies or a leader that moves is asked again, for
`SourceOptions.answer_s_max` (kafka.default.api.timeout.ms). Owned by the driver's Python worker and
its only thread; it is never pickled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.kafka.brokers import GROUP, Brokers, Patience
from penstock.kafka.client import Address, failed, parse_addresses, place
from penstock.kafka.errors import ClusterError
from penstock.kafka.offsets import (
    LIST_OFFSETS_VERSION,
    PASSING,
    offsets_request,
    read_offsets,
)
from penstock.spark.offsets import EARLIEST, LATEST, Offsets, Partition
from penstock.spark.options import SourceOptions
from penstock.wire.messages.list_offsets import ListOffsetsResponse
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

OFFSET_COMMIT_VERSION: Final = 8
_ANSWERS: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""What a broker can say of a topic that is an answer: its partitions, or that it has none."""

log = logging.getLogger(__name__)


class Cluster:
    """One cluster, as one query sees it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._brokers = Brokers(
            parse_addresses(options.bootstrap), options.answer_s_max, options.client
        )
        self._leaders: dict[Partition, Address | None] = {}

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that were there when topics were last asked for."""
        return tuple(map(place, self._brokers.known))

    def partitions(self, *, missing_ok: bool = False) -> list[Partition]:
        """Every partition that the query reads; what it names must exist, unless `missing_ok`."""
        options = self._options
        names = options.topics or tuple(sorted({topic for topic, _ in options.assigned}))
        there = self._find(None if options.pattern is not None else names)
        topics = {topic for topic, _ in there}
        for name in () if missing_ok else names:
            if name not in topics:
                raise ClusterError(
                    f"topic {name} ({options.subscription}) does not exist on {options.bootstrap};"
                    " make it, or correct the option"
                )
        if not options.assigned:
            return sorted(there)
        if not missing_ok and (missing := sorted(options.assigned - there)):
            raise ClusterError(
                f"topic {missing[0][0]} has no partition {missing[0][1]}, which option assign names"
            )
        return sorted(options.assigned & there)

    def _find(self, names: Iterable[str] | None) -> set[Partition]:
        """The partitions of topics, None for those that the pattern matches; notes their leaders.
        Topics that do not exist have none.
        """
        patience = Patience(self._brokers.settle_s)
        while True:
            answer = self._brokers.metadata(names)
            topics = [t for t in answer.topics if names is not None or self._matches(t)]
            codes = {t.name: ErrorCode(t.error_code) for t in topics}
            bad = [(name, code) for name, code in codes.items() if code not in _ANSWERS]
            if not bad:
                break
            name, code = bad[0]
            if code is not ErrorCode.LEADER_NOT_AVAILABLE or not patience.wait():
                raise ClusterError(
                    f"cannot read topic {name} on {self._options.bootstrap}: {code.name}; correct"
                    " the subscription, or let the query's user read the topic"
                )
        return self._note_leaders(answer, topics)

    def _matches(self, topic: MetadataResponseTopic) -> bool:
        pattern = self._options.pattern or ""
        return not topic.is_internal and re.search(pattern, topic.name or "") is not None

    def _note_leaders(
        self, answer: MetadataResponse, topics: list[MetadataResponseTopic]
    ) -> set[Partition]:
        addresses = {b.node_id: (b.host, b.port) for b in answer.brokers}
        found = {
            (topic.name or "", partition.partition_index): addresses.get(partition.leader_id)
            for topic in topics
            for partition in topic.partitions
        }
        self._leaders |= found
        return set(found)

    def earliest(self, partitions: Iterable[Partition]) -> Offsets:
        """Where each partition begins."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[Partition]) -> Offsets:
        """Where each partition ends; for readers of committed data, where that ends."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def at_times(self, times_ms: Mapping[Partition, int]) -> Offsets:
        """The first offset of that time or later in each partition; -1 where there is none."""
        return self._offsets(times_ms)

    def _offsets(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Offsets at times; the protocol gives the times -2 and -1 the meaning that options do."""
        found: Offsets = {}
        patience = Patience(self._brokers.settle_s)
        while True:
            left = {p: ms for p, ms in wanted.items() if p not in found}
            got, why = self._ask_leaders(left)
            found |= got
            if len(found) == len(wanted):
                return found
            topics = sorted({topic for topic, _ in wanted.keys() - found.keys()})
            if not patience.wait():
                raise ClusterError(
                    f"cannot read the offsets of topic {', '.join(topics)} on"
                    f" {self._options.bootstrap}: {why}, for {self._brokers.settle_s:g} s now; see"
                    " whether the cluster is well"
                )
            self._find_again(topics, left)

    def _find_again(self, topics: list[str], wanted: Iterable[Partition]) -> None:
        there = self._find(topics)
        if gone := sorted(p for p in wanted if p[0] in topics and p not in there):
            raise ClusterError(
                f"cannot read the offsets of topic {gone[0][0]} partition {gone[0][1]} on"
                f" {self._options.bootstrap}: it does not exist any more; start the query again"
            )

    def _ask_leaders(self, wanted: Mapping[Partition, int]) -> tuple[Offsets, str]:
        """What leaders say, and why some partitions are left."""
        by_leader: dict[Address, list[Partition]] = {}
        why = ""
        for partition in wanted:
            if (leader := self._leaders.get(partition)) is None:
                why = f"partition {partition[1]} of topic {partition[0]} has no leader"
            else:
                by_leader.setdefault(leader, []).append(partition)
        found: Offsets = {}
        for address, mine in by_leader.items():
            request = offsets_request(
                {p: wanted[p] for p in mine}, committed=self._options.committed
            )
            try:
                answer = self._brokers.ask(
                    address, request, ListOffsetsResponse, LIST_OFFSETS_VERSION
                )
            except OSError as e:
                why = failed(address, e)
                continue
            got, bad = self._read(answer)
            found |= got
            why = bad or why
        return found, why

    def _read(self, answer: ListOffsetsResponse) -> tuple[Offsets, str]:
        found, refused = read_offsets(answer)
        for (topic, partition), code in refused.items():
            if code not in PASSING:
                raise ClusterError(
                    f"cannot read the offsets of topic {topic} partition {partition} on"
                    f" {self._options.bootstrap}: {code.name}"
                )
        return found, next((code.name for code in refused.values()), "")

    def note_progress(self, group: str, offsets: Offsets) -> None:
        """Commits offsets to a group, for those who watch its lag. The query does not depend on
        them, so a failure is logged and nothing more.
        """
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            one = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(topic, []).append(one)
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
        )
        try:
            answer = self._brokers.ask_coordinator(
                GROUP, group, request, OffsetCommitResponse, OFFSET_COMMIT_VERSION, _codes
            )
        except ClusterError as e:
            log.warning("%s; the query goes on, its checkpoint is what counts", e)
            return
        if refused := sorted({ErrorCode(code).name for code in _codes(answer) if code}):
            log.warning(
                "progress is not committed to group %s: %s; has it members of its own? The query"
                " goes on, its checkpoint is what counts",
                group,
                ", ".join(refused),
            )


def _codes(answer: OffsetCommitResponse) -> list[int]:
    return [p.error_code for topic in answer.topics for p in topic.partitions]
