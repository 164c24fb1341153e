"""A shard's offsets under commits, transactions, deletions, expiry, fail-overs and compaction.

One seed decides everything. Groups of every kind store offsets, plainly and in transactions that
run side by side and end in any order. After every step, what the shard answers is held against
`believed`, which reads the log as Kafka does: an offset in a transaction counts from its marker
on, and of two the one whose record is the later. At random points the log is replayed, from its
beginning, up to a point in the past, or after it was compacted; the shard that comes of it must
be equal.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinator.config import MINUTE_MS
from penstock.coordinator.records import OffsetCommitKey, OffsetCommitValue, decode
from penstock.coordinator.shard import GroupShard
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from unit.coordinator.rig import Logged, ShardRig, pending, stored
from unit.coordinator.test_offsets import delete_offsets
from unit.coordinator.test_shard import heartbeat, joined

SIMPLE_GROUPS = ("a", "b")
CLASSIC_GROUP = "classic"
CONSUMER_GROUP = "consumer"
GROUPS = (*SIMPLE_GROUPS, CLASSIC_GROUP, CONSUMER_GROUP)
TOPICS = {"t": 2, "u": 1}
PRODUCERS = range(1, 5)
RETENTION_MINUTES = 10


class Place(NamedTuple):
    group: str
    topic: str
    partition: int


class Believed(NamedTuple):
    """What a log says: offsets by place, and offsets of open transactions by producer and place."""

    committed: dict[Place, int]
    pending: dict[tuple[int, Place], int]


class Seen(NamedTuple):
    """One entry of a log, with its offset there."""

    offset: int
    entry: Logged


def read(entry: Logged) -> tuple[Place, int | None] | None:
    """Where a record stores an offset, and which (None: a tombstone); None for other records."""
    if entry.record is None:
        return None
    found = decode(*entry.record)
    if found is None or not isinstance(found.key, OffsetCommitKey):
        return None
    place = Place(found.key.group, found.key.topic, found.key.partition)
    assert found.value is None or isinstance(found.value, OffsetCommitValue)
    return place, None if found.value is None else found.value.offset


def believed(log: list[Seen]) -> Believed:
    committed: dict[Place, Seen] = {}
    open_: dict[int, dict[Place, Seen]] = {}
    for seen in log:
        entry = seen.entry
        if entry.marker is not None:
            ended = open_.pop(entry.marker.producer_id, {})
            for place, stored_ in ended.items() if entry.marker.commit else ():
                if place not in committed or committed[place].offset < stored_.offset:
                    committed[place] = stored_
            continue
        said = read(entry)
        if said is None:
            continue
        place, value = said
        if value is None:
            committed.pop(place, None)
            for places in open_.values():
                places.pop(place, None)
        elif entry.producer_id is None:
            committed[place] = seen
        else:
            open_.setdefault(entry.producer_id, {})[place] = seen
    return Believed(
        {place: _value(seen) for place, seen in committed.items()},
        {
            (producer, place): _value(seen)
            for producer, places in open_.items()
            for place, seen in places.items()
        },
    )


def _value(seen: Seen) -> int:
    said = read(seen.entry)
    assert said is not None
    assert said[1] is not None
    return said[1]


def held(shard: GroupShard) -> Believed:
    """What a shard has in memory."""
    committed = {Place(*offset[:3]): offset.committed.offset for offset in stored(shard)}
    waiting = {
        (producer, Place(*place)): offset.offset
        for (producer, place), offset in pending(shard).items()
    }
    return Believed(committed, waiting)


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rig = ShardRig(offsets_retention_minutes=RETENTION_MINUTES)
        self.rig.topics.counts.clear()
        self.rig.topics.counts.update(TOPICS)
        self.offset = 0
        self.member = joined(self.rig, CLASSIC_GROUP)
        self.epoch = heartbeat(self.rig, CONSUMER_GROUP, member_id="m").member_epoch
        self.trace: list[str] = []

    def run(self, steps: int) -> None:
        actions = (
            [self.store] * 10
            + [self.commit] * 6
            + [self.end] * 5
            + [self.delete, self.pass_time, self.fail_over, self.replay, self.compact] * 2
            + [self.delete_group, self.delete_topic, self.zombie]
        )
        for _ in range(steps):
            action = self.random.choice(actions)
            self.trace.append(action.__name__)
            action()
            self.check()
        for producer in PRODUCERS:
            self.rig.end(self.random.random() < 0.5, producer)
            self.check()
        assert pending(self.rig.shard) == {}

    # -- what can happen -----------------------------------------------------------------------

    def place(self) -> tuple[str, tuple[str, int]]:
        topic = self.random.choice(list(TOPICS))
        self.offset += 1
        return self.random.choice(GROUPS), (topic, self.random.randrange(TOPICS[topic]))

    def member_of(self, group: str, epoch_field: str) -> dict[str, Any]:
        if group == CLASSIC_GROUP:
            return {"member_id": self.member, epoch_field: 1}
        if group == CONSUMER_GROUP:
            return {"member_id": "m", epoch_field: self.epoch}
        return {}

    def store(self) -> None:
        group, place = self.place()
        who = self.member_of(group, "generation_id")
        if self.random.random() < 0.2:
            who = {"version": 2}  # an old client, which does not say who it is
        producer = self.random.choice(PRODUCERS)
        codes = self.rig.txn_commit(group, {place: self.offset}, producer_id=producer, **who)
        assert codes == [0]

    def commit(self) -> None:
        group, place = self.place()
        who = self.member_of(group, "generation_id_or_member_epoch")
        assert self.rig.commit(group, {place: self.offset}, **who) == [0]

    def zombie(self) -> None:
        """A member of the past is refused, in a transaction or not, and leaves nothing behind."""
        group, place = self.place()
        if group in SIMPLE_GROUPS:
            return
        before = len(self.rig.log)
        past = {**self.member_of(group, "generation_id"), "generation_id": 0}
        assert self.rig.txn_commit(group, {place: 1}, **past) == [ErrorCode.ILLEGAL_GENERATION]
        assert len(self.rig.log) == before

    def end(self) -> None:
        self.rig.end(self.random.random() < 0.6, self.random.choice(PRODUCERS))

    def delete(self) -> None:
        group, (topic, partition) = self.place()
        if group in self.rig.shard.groups:
            delete_offsets(self.rig, group, topic, partition)

    def delete_group(self) -> None:
        self.rig.ask(DeleteGroupsRequest(groups_names=[self.random.choice(SIMPLE_GROUPS)]))

    def delete_topic(self) -> None:
        """Deleted and made anew at once."""
        topic = self.random.choice(list(TOPICS))
        self.rig.take(self.rig.shard.topics_deleted(frozenset({topic})))
        said = believed(self.log())
        places = [*said.committed, *(place for _, place in said.pending)]
        assert all(place.topic != topic for place in places)

    def pass_time(self) -> None:
        self.rig.now_ms += self.random.randint(1, 12) * MINUTE_MS
        before = believed(self.log())
        self.rig.take(self.rig.shard.expire(self.rig.now_ms))
        after = believed(self.log())
        assert after.pending == before.pending, "what is pending does not expire"
        under = {place for _, place in before.pending}
        assert {p for p in before.committed if p in under} <= after.committed.keys()
        assert {place.group for place in under} <= self.rig.shard.groups.keys()

    def fail_over(self) -> None:
        self.rig.crash()

    # -- what must hold ------------------------------------------------------------------------

    def log(self) -> list[Seen]:
        return [Seen(offset, entry) for offset, entry in enumerate(self.rig.log)]

    def check(self) -> None:
        self.rig.shard.invariants()
        said = believed(self.log())
        assert held(self.rig.shard) == said
        group = self.random.choice(GROUPS)
        self.check_answers(group, said)

    def check_answers(self, group: str, said: Believed) -> None:
        """What a client is told of a group's offsets, stable or as they are."""
        wanted = {topic: list(range(count)) for topic, count in TOPICS.items()}
        who: dict[str, Any] = {}
        if group == CONSUMER_GROUP:
            who = {"member_id": "m", "member_epoch": self.epoch}
        unstable = {place for _, place in said.pending}
        for require_stable in (False, True):
            found = self.rig.fetch(group, wanted, require_stable=require_stable, **who)
            for topic in found.topics:
                for partition in topic.partitions:
                    place = Place(group, topic.name, partition.partition_index)
                    if require_stable and place in unstable:
                        assert partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                        assert partition.committed_offset == -1
                    else:
                        assert partition.error_code == 0
                        assert partition.committed_offset == said.committed.get(place, -1)

    def replay(self) -> None:
        """A shard that is built from a beginning of the log is as the log was then."""
        at = self.random.randint(0, len(self.rig.log))
        shard = self.rig.replayed(self.rig.log[:at])
        assert held(shard) == believed(self.log()[:at])
        whole = self.rig.replayed()
        assert stored(whole) == stored(self.rig.shard)
        assert pending(whole) == pending(self.rig.shard)

    def compact(self) -> None:
        """Compaction takes away nothing that counts."""
        kept = compacted(self.log(), self.random)
        assert held(self.rig.replayed([seen.entry for seen in kept])) == held(self.rig.shard)


def compacted(log: list[Seen], chance: random.Random) -> list[Seen]:
    """The log as the cleaner would leave it, up to a point that no open transaction is behind."""
    ends = _ends(log)
    stable = min((s.offset for s in log if _is_open(s, ends)), default=len(log))
    up_to = chance.randint(0, stable)
    last: dict[bytes, int] = {}
    for seen in log[:up_to]:
        if seen.entry.record is not None and not _is_aborted(seen, ends):
            last[seen.entry.record.key] = seen.offset
    return [
        seen
        for seen in log
        if seen.offset >= up_to
        or seen.entry.record is None
        or (not _is_aborted(seen, ends) and last[seen.entry.record.key] == seen.offset)
    ]


def _ends(log: list[Seen]) -> dict[int, bool]:
    """How the transaction of each transactional record ended, by the record's offset."""
    ends: dict[int, bool] = {}
    open_: dict[int, list[int]] = {}
    for seen in log:
        marker, producer_id = seen.entry.marker, seen.entry.producer_id
        if marker is not None:
            ends |= dict.fromkeys(open_.pop(marker.producer_id, ()), marker.commit)
        elif producer_id is not None:
            open_.setdefault(producer_id, []).append(seen.offset)
    return ends


def _is_open(seen: Seen, ends: dict[int, bool]) -> bool:
    return seen.entry.producer_id is not None and seen.offset not in ends


def _is_aborted(seen: Seen, ends: dict[int, bool]) -> bool:
    return seen.entry.producer_id is not None and ends.get(seen.offset) is False
