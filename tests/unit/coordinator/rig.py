"""A shard with topics and a clock that the test moves; the records it emits are kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.base.ids import Uuid
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, EndTxnMarker
from penstock.coordinator.offsets import CommittedOffset, GroupOffset
from penstock.coordinator.shard import GroupShard
from penstock.coordinator.transactional_offsets import OffsetPlace
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.schema import Message

START_MS = 1_700_000_000_000


class Topics:
    """A `TopicsView` of a dict from name to partition count."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        return id_of(name) if name in self.counts else None

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name in self.counts if id_of(name) == topic_id), None)

    def racks(self, name: str, partition: int) -> frozenset[str]:
        return frozenset()

    def all_names(self) -> Iterable[str]:
        return self.counts


def id_of(name: str) -> Uuid:
    return name.encode().ljust(16, b"!")


class CountingRng:
    def __init__(self) -> None:
        self._last = 0

    def uuid(self) -> Uuid:
        self._last += 1
        return self._last.to_bytes(16, "big")

    def below(self, n: int) -> int:
        return 0


class Logged(NamedTuple):
    """What stands in the partition: a record, or a marker in its place."""

    timestamp: int
    record: CoordinatorRecord | None
    producer_id: int | None = None
    marker: EndTxnMarker | None = None

    def replay(self, shard: GroupShard) -> None:
        if self.marker is not None:
            shard.replay_marker(self.marker.producer_id, self.marker.commit)
        elif self.record is not None:
            shard.replay(*self.record, self.timestamp, self.producer_id)


class ShardRig:
    def __init__(self, **config: Any) -> None:
        self.topics = Topics(t=4, u=2)
        self._config = GroupConfig(**config)
        self.shard = self._new()
        self.now_ms = START_MS
        self.log: list[Logged] = []
        self._tokens = 0

    def _new(self) -> GroupShard:
        return GroupShard(self._config, self.topics, CountingRng())

    def send(self, request: Message, version: int | None = None) -> Effects:
        version = request.VERSIONS.stop - 1 if version is None else version
        self._tokens += 1
        caller = Caller(self._tokens, version, "client", "/127.0.0.1")
        return self.take(self.shard.handle(request, caller, self.now_ms))

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The answer that comes at once, in the form in which it would be read."""
        [reply] = self.send(request, version).replies
        assert reply.token == self._tokens
        used = request.VERSIONS.stop - 1 if version is None else version
        if not isinstance(request, OffsetFetchRequest):
            reply.response.encode(used)  # what cannot be sent is no answer
        return reply.response

    def take(self, effects: Effects) -> Effects:
        producer_id = effects.producer.producer_id if effects.producer is not None else None
        self.log += [Logged(self.now_ms, record, producer_id) for record in effects.records]
        if effects.marker is not None:
            self.log.append(Logged(self.now_ms, None, marker=effects.marker))
        return effects

    def replayed(self, log: list[Logged] | None = None) -> GroupShard:
        """A shard that is built from what is written alone, all of it unless `log` is given."""
        shard = self._new()
        for logged in self.log if log is None else log:
            logged.replay(shard)
        shard.loaded(self.now_ms)
        return shard

    def crash(self) -> None:
        self.shard = self.replayed()

    # -- offsets -----------------------------------------------------------------------------------

    def commit(self, group: str, offsets: dict[tuple[str, int], int], **how: Any) -> list[int]:
        """Commits; the error codes in the order of the offsets."""
        version = how.pop("version", 9)
        metadata = how.pop("metadata", "")
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=id_of(topic),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=5,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
            **how,
        )
        answer = self.ask(request, version)
        return [p.error_code for topic in answer.topics for p in topic.partitions]

    def txn_commit(self, group: str, offsets: dict[tuple[str, int], int], **how: Any) -> list[int]:
        """Commits in the transaction of producer 1, or of `producer_id`; the error codes."""
        version = how.pop("version", 5)
        metadata = how.pop("metadata", "")
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=how.pop("producer_id", 1),
            producer_epoch=how.pop("producer_epoch", 0),
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=5,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
            **how,
        )
        answer = self.ask(request, version)
        return [p.error_code for topic in answer.topics for p in topic.partitions]

    def end(self, commit: bool, producer_id: int = 1) -> None:
        """The marker of the producer's transaction comes."""
        self.take(self.shard.end_transaction(EndTxnMarker(producer_id, 0, 7, commit), self.now_ms))

    def fetch(self, group: str, topics: dict[str, list[int]] | None, **how: Any) -> Any:
        """The answer for one group."""
        version = how.pop("version", 9)
        require_stable = how.pop("require_stable", False)
        wanted = None
        if topics is not None:
            wanted = [
                OffsetFetchRequestTopics(
                    name=name,
                    topic_id=id_of(name) if version >= 10 else bytes(16),
                    partition_indexes=indexes,
                )
                for name, indexes in topics.items()
            ]
        one = OffsetFetchRequestGroup(group_id=group, topics=wanted, **how)
        request = OffsetFetchRequest(groups=[one], require_stable=require_stable)
        [found] = self.ask(request, version).groups
        return found


def stored(shard: GroupShard) -> set[GroupOffset]:
    return {offset for id_ in shard.offsets.group_ids() for offset in shard.offsets.of_group(id_)}


def pending(shard: GroupShard) -> dict[tuple[int, OffsetPlace], CommittedOffset]:
    """The offsets of open transactions, by producer id and place."""
    return shard.offsets.pending.all()
