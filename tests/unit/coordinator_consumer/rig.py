"""A shard with a clock, timers, topics and a log around it: the driver in a nutshell.

Requests and answers go through their encoding in the version of the caller, records through theirs.
Records commit at once. `fail_over` throws the shard away and replays the log.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from penstock.base.ids import Uuid
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.consumer import ConsumerGroup
from penstock.coordinator.effects import (
    Caller,
    CoordinatorRecord,
    Effects,
    EndTxnMarker,
    SetTimer,
    TimerKey,
)
from penstock.coordinator.shard import GroupShard
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartition,
)
from penstock.wire.schema import Message

GROUP = "g"
Owned = set[tuple[str, int]]


class Topics:
    """The cluster's topics, in memory."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.ids: dict[str, Uuid] = {}
        self.racks_of: dict[tuple[str, int], frozenset[str]] = {}
        self._made = itertools.count(1)

    def create(self, name: str, partitions: int) -> None:
        self.counts[name] = partitions
        self.ids[name] = next(self._made).to_bytes(16, "big")

    def delete(self, name: str) -> None:
        del self.counts[name], self.ids[name]

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_id(self, name: str) -> Uuid | None:
        return self.ids.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name, found in self.ids.items() if found == topic_id), None)

    def racks(self, name: str, partition: int) -> frozenset[str]:
        return self.racks_of.get((name, partition), frozenset())

    def all_names(self) -> list[str]:
        return list(self.counts)


class CountingRng:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> Uuid:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, n: int) -> int:
        return 0


class Rig:
    def __init__(self, **settings: Any) -> None:
        self.config = GroupConfig(**{"group_consumer_assignment_interval_ms": 0, **settings})
        self.topics = Topics()
        self.rng = CountingRng()
        self.now_ms = 1_000_000
        self.timers: dict[TimerKey, int] = {}
        self.log: list[CoordinatorRecord] = []
        self.producers: dict[int, int] = {}
        """The producer ids of the records in `log` that are part of transactions, by place."""
        self.markers: dict[int, list[EndTxnMarker]] = {}
        """The markers, by the place in `log` that they come before."""
        self.last = Effects()
        self.shard = self.make_shard()
        self.answers: dict[int, Message] = {}
        self._tokens = itertools.count(1)

    def make_shard(self) -> GroupShard:
        return GroupShard(self.config, self.topics, self.rng)

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    # -- the driver ----------------------------------------------------------------------------

    def apply(self, effects: Effects) -> Effects:
        self.last = effects
        if effects.producer is not None:
            for place in range(len(self.log), len(self.log) + len(effects.records)):
                self.producers[place] = effects.producer.producer_id
        self.log += effects.records
        if effects.marker is not None:
            self.markers.setdefault(len(self.log), []).append(effects.marker)
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        for token, response in effects.replies:
            assert token not in self.answers, "answered twice"
            self.answers[token] = response
        self.shard.invariants()
        return effects

    def start(self, request: Message, version: int, client_id: str = "c") -> int:
        """Send a request; its token finds the answer when there is one."""
        token = next(self._tokens)
        decoded = type(request).decode(request.encode(version), version)
        caller = Caller(token, version, client_id, "/127.0.0.1")
        self.apply(self.shard.handle(decoded, caller, self.now_ms))
        if token in self.answers:
            answer = self.answers[token]
            self.answers[token] = type(answer).decode(answer.encode(version), version)
        return token

    def send(self, request: Message, version: int, client_id: str = "c") -> Any:
        return self.answers[self.start(request, version, client_id)]

    def advance(self, by_ms: int) -> None:
        """Let time pass; timers run at their own time."""
        end_ms = self.now_ms + by_ms
        while self.timers:
            key = min(self.timers, key=lambda k: (self.timers[k], k))
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.apply(self.shard.on_timer(key, self.now_ms))
        self.now_ms = end_ms

    def rebuilt(self) -> GroupShard:
        shard = self.make_shard()
        for place in range(len(self.log) + 1):
            for marker in self.markers.get(place, ()):
                shard.replay_marker(marker.producer_id, marker.commit)
            if place < len(self.log):
                key, value = self.log[place]
                shard.replay(key, value, self.now_ms, self.producers.get(place))
        return shard

    def fail_over(self) -> None:
        self.shard = self.rebuilt()
        self.timers.clear()
        self.apply(self.shard.loaded(self.now_ms))

    def check_replay(self) -> None:
        """The log says what memory says."""
        rebuilt = self.rebuilt()
        assert snapshot(rebuilt) == snapshot(self.shard)
        assert rebuilt.offsets.of_group(GROUP) == self.shard.offsets.of_group(GROUP)
        assert rebuilt.offsets.pending.all() == self.shard.offsets.pending.all()

    # -- topics --------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> None:
        self.topics.create(name, partitions)
        self.changed(name)

    def delete(self, name: str) -> None:
        self.topics.delete(name)
        self.changed(name)

    def grow(self, name: str, partitions: int) -> None:
        self.topics.counts[name] = partitions
        self.changed(name)

    def changed(self, name: str) -> None:
        self.apply(self.shard.topics_changed(frozenset({name}), self.now_ms))

    # -- the consumer protocol -----------------------------------------------------------------

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: Owned | None = None,
        version: int = 1,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        if owned is not None:
            request.topic_partitions = self.grouped(owned)
        response = self.send(request, version)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join(
        self, member_id: str, topics: list[str] | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        return self.beat(member_id, 0, owned=set(), subscribed_topic_names=topics, **fields)

    def grouped(self, owned: Owned) -> list[TopicPartitions]:
        by_id: dict[Uuid, list[int]] = {}
        for name, number in sorted(owned):
            if name in self.topics.ids:
                by_id.setdefault(self.topics.ids[name], []).append(number)
        return [TopicPartitions(topic_id=i, partitions=n) for i, n in by_id.items()]

    def named(self, response: ConsumerGroupHeartbeatResponse) -> Owned | None:
        """The partitions of an answer by topic name; None if it carries none."""
        if response.assignment is None:
            return None
        return {
            (self.topics.name_of(t.topic_id) or t.topic_id.hex(), number)
            for t in response.assignment.topic_partitions
            for number in t.partitions
        }


def snapshot(shard: GroupShard) -> dict[str, Any]:
    """What must survive a fail-over."""
    found: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if not isinstance(group, ConsumerGroup):
            found[group_id] = group.group_type
            continue
        roster = group.engine.roster
        found[group_id] = (
            roster.epoch,
            roster.assignment_epoch,
            roster.assignment_ms,
            roster.metadata_hash,
            {m.member_id: (m.profile, m.progress) for m in roster.members.values()},
            {m: target for m, target in roster.target.items() if target},
            roster.static_ids,
            roster.regexes,
        )
    return found


def subscription(
    topics: list[str], owned: Owned | None = None, version: int = 1, generation: int = -1
) -> bytes:
    """The metadata of a classic consumer."""
    grouped: dict[str, list[int]] = {}
    for name, number in sorted(owned or ()):
        grouped.setdefault(name, []).append(number)
    message = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=[OwnedTopicPartition(topic=t, partitions=n) for t, n in grouped.items()],
        generation_id=generation,
    )
    return struct.pack(">h", version) + message.encode(version)


def assignment(raw: bytes) -> Owned:
    """The partitions of a SyncGroup answer."""
    (version,) = struct.unpack_from(">h", raw)
    decoded = ConsumerProtocolAssignment.decode(raw[2:], version)
    return {(t.topic, n) for t in decoded.assigned_partitions for n in t.partitions}
