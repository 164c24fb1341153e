"""Apache Kafka as the referee of share groups: the same requests, good and bad, to both brokers.

What differs on purpose stands in `DEVIATIONS`, with its reason; everything else must agree. Each
script is played in both versions of ShareFetch and ShareAcknowledge where it sends them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.batches import batch
from support.calls import RawTopic, find_topic, produce
from support.features import SHARE_VERSION, enable_feature
from support.group_calls import await_coordinator
from support.helpers import make_topic
from support.node import NodeProcess
from support.process import BrokerProcess
from support.raw import RawClient
from support.referee import Script, compare
from support.reference import KafkaProcess
from support.share_calls import (
    ACCEPT,
    FINAL,
    GAP,
    INITIAL,
    JOIN,
    LEAVE,
    REJECT,
    RELEASE,
    RENEW,
    Acks,
    RawMember,
    ranges,
)
from support.share_groups import SHARE_SETTINGS, set_group

pytestmark = pytest.mark.java

SESSIONS_MAX = 4
SETTINGS = SHARE_SETTINGS | {
    "auto.create.topics.enable": "false",
    "group.share.max.share.sessions": str(SESSIONS_MAX),
    "group.share.max.size": str(SESSIONS_MAX),
}
VERSIONS = (1, 2)
RECORDS = 10
SEEDS = range(6)
NOWHERE = b"\x05" * 16

# (script, pattern of the difference, why it is right)
BY_ACCIDENT = "Kafka fails by accident; the client is told its error"
DEVIATIONS: list[tuple[str, str, str]] = [
    ("sessions", "^/unknown topic/", BY_ACCIDENT),
    ("acknowledging_by_fetch", "^/unknown topic/", BY_ACCIDENT),
]


class Group:
    """A group of a script, and a topic of two partitions of which the first has records."""

    def __init__(self, run: Script, version: int, suffix: str = "g", **config: str) -> None:
        self.run = run
        self.version = version
        self.id = f"{run.name}-{suffix}"
        self.client = RawClient(run.broker.host, run.broker.port)
        await_coordinator(self.client, self.id)
        name = make_topic(run.broker, f"{self.id}-t", 2)
        self.topic: RawTopic = find_topic(self.client, name)
        set_group(self.client, self.id, share_auto_offset_reset="earliest", **config)
        self.publish()
        self._members = 0

    def publish(self, records: int = RECORDS) -> None:
        data = batch([b"v"] * records)
        assert produce(self.client, self.topic, data).error_code == 0

    def member(self) -> RawMember:
        """A member that has joined."""
        self._members += 1
        member_id = f"{self.id[:30]}-{self._members}"
        member = RawMember(self.client, self.id, self.topic, member_id, self.version)
        member.join()
        return member

    def fetch(self, label: str, by: RawMember, epoch: int, acks: Acks = (), **fields: Any) -> None:
        self.run.ask(label, by.fetch_request(epoch, acks, **fields), self.version)

    def acknowledge(
        self, label: str, by: RawMember, epoch: int, acks: Acks = (), **fields: Any
    ) -> None:
        self.run.ask(label, by.acknowledge_request(epoch, acks, **fields), self.version)


# Sessions


def sessions(run: Script, version: int) -> None:
    group = Group(run, version)
    one = group.member()
    fetch, acknowledge = group.fetch, group.acknowledge
    for label, fields in {
        "no group": {"group_id": None},
        "no member": {"member_id": None},
        "empty member": {"member_id": ""},
        "long member": {"member_id": "m" * 37},
        "unknown member": {"member_id": "somebody"},
    }.items():
        fetch(f"fetch, {label}", one, 3, **fields)
        acknowledge(f"acknowledge, {label}", one, 3, **fields)
    for epoch in (1, 7, -2, FINAL):
        fetch(f"fetch, no session, {epoch}", one, epoch)
        acknowledge(f"acknowledge, no session, {epoch}", one, epoch)
    acknowledge("acknowledge first", one, INITIAL)
    fetch("acknowledgements first", one, INITIAL, [(0, 0, [ACCEPT])])
    one.take()
    for label, epoch in {"behind": one.epoch - 1, "ahead": one.epoch + 1, "-2": -2}.items():
        if epoch != INITIAL:
            fetch(f"fetch, epoch {label}", one, epoch)
        acknowledge(f"acknowledge, epoch {label}", one, epoch)
    acknowledge("acknowledge first, in a session", one, INITIAL)
    partitions_of_a_session(group, one)
    fetch("the end", one, FINAL)
    fetch("after the end", one, one.epoch)
    acknowledge("end of what has ended", one, FINAL)
    one.leave()


def partitions_of_a_session(group: Group, one: RawMember) -> None:
    ask = partial(group.fetch, by=one)
    for label, fields in {
        "unknown topic": {"topic_id": NOWHERE},
        "unknown topic forgotten": {"topic_id": NOWHERE, "forget": True},
        "unknown partition": {"partition": 9},
        "unknown partition forgotten": {"partition": 9, "forget": True},
        "another partition": {"partition": 1},
        "the first forgotten": {"forget": True},
        "what is not there forgotten": {"forget": True},
        "no bytes": {"max_bytes": 0},
        "no records": {"max_records": 0},
    }.items():
        ask(label, epoch=one._next(), **fields)


def session_limit(run: Script, version: int) -> None:
    group = Group(run, version)
    members = [group.member() for _ in range(SESSIONS_MAX)]
    for member in members:
        member.fetch(max_wait_ms=0)
    more = RawMember(group.client, group.id, group.topic, "more", version)
    group.fetch("one too many", more, INITIAL, max_wait_ms=100)
    group.fetch("one too many, at once", more, INITIAL, max_wait_ms=0)
    group.fetch("one anew", members[0], INITIAL, max_wait_ms=0, max_records=0)
    members[1].close()
    group.fetch("one instead", more, INITIAL, max_wait_ms=0, max_records=0)
    for member in (more, members[0], *members[2:]):
        member.close()
    for member in members:
        member.leave()


# Acknowledgements

BAD: Mapping[str, Acks] = {
    "descending range": [(4, 3, [ACCEPT])],
    "descending ranges": [(4, 4, [ACCEPT]), (2, 2, [ACCEPT])],
    "overlapping": [(0, 2, [ACCEPT]), (1, 3, [ACCEPT])],
    "the same twice": [(0, 2, [ACCEPT]), (0, 2, [ACCEPT])],
    "touching": [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
    "no type": [(0, 2, [])],
    "too few types": [(0, 2, [ACCEPT, ACCEPT])],
    "too many types": [(0, 2, [ACCEPT] * 4)],
    "type 5": [(0, 2, [5])],
    "type -1": [(0, 2, [-1])],
    "one bad type": [(0, 2, [ACCEPT, 7, ACCEPT])],
    "renew": [(0, 2, [RENEW])],
    "renew of one": [(0, 2, [ACCEPT, RENEW, ACCEPT])],
    "negative": [(-3, -1, [ACCEPT])],
    "beyond": [(RECORDS, RECORDS + 3, [ACCEPT])],
    "partly beyond": [(RECORDS - 2, RECORDS + 3, [ACCEPT])],
    "far beyond": [(1 << 62, (1 << 62) + 3, [ACCEPT])],
    "good and beyond": [(0, 2, [ACCEPT]), (RECORDS, RECORDS + 3, [ACCEPT])],
}
GOOD: Mapping[str, Acks] = {
    "nothing": [],
    "one, from negative": [(-1, 0, [ACCEPT])],
    "once more": [(0, 0, [ACCEPT])],
    "below the start": [(0, 1, [ACCEPT])],
    "each its own": [(2, 5, [ACCEPT, RELEASE, REJECT, GAP])],
    "what was released": [(3, 3, [ACCEPT])],
    "what was rejected": [(4, 4, [ACCEPT])],
    "held and not held": [(5, 6, [ACCEPT])],
    "two ranges": [(6, 6, [ACCEPT]), (8, 8, [RELEASE])],
    "the rest": [(9, 9, [REJECT])],
}


def acknowledging(run: Script, version: int) -> None:
    group = Group(run, version)
    one, other = group.member(), group.member()
    data = one.take()
    run.answers["taken"] = [(r.first_offset, r.last_offset) for r in data.acquired_records]
    other.fetch(max_wait_ms=0)
    ask = group.acknowledge
    for label, acks in BAD.items():
        ask(label, one, one._next(), acks)
    ask("of another member", other, other._next(), [(0, 2, [ACCEPT])])
    ask("unknown topic", one, one._next(), [(0, 2, [ACCEPT])], topic_id=NOWHERE)
    ask("unknown partition", one, one._next(), [(0, 2, [ACCEPT])], partition=9)
    ask("partition never fetched", one, one._next(), [(0, 2, [ACCEPT])], partition=1)
    for label, acks in GOOD.items():
        ask(label, one, one._next(), acks)
    one.close()
    other.close()
    for member in (one, other):
        member.leave()


def acknowledging_by_fetch(run: Script, version: int) -> None:
    """Acknowledgements that come with a fetch, which is to bring no records here."""
    group = Group(run, version)
    one, other = group.member(), group.member()
    one.take()
    other.fetch(max_wait_ms=0)
    ask = partial(group.fetch, max_wait_ms=0, max_records=0)
    for label, acks in BAD.items():
        ask(label, one, one._next(), acks)
    ask("of another member", other, other._next(), [(0, 2, [ACCEPT])])
    for label, acks in GOOD.items():
        ask(label, one, one._next(), acks)
    ask("unknown partition", one, one._next(), [(0, 2, [ACCEPT])], partition=9)
    ask("partition never fetched", one, one._next(), [(0, 2, [ACCEPT])], partition=1)
    ask("unknown topic", one, one._next(), [(0, 2, [ACCEPT])], topic_id=NOWHERE)
    one.close()
    other.close()
    for member in (one, other):
        member.leave()


def deliveries(run: Script, version: int) -> None:
    """How often a record comes, in which ranges, until it comes no more."""
    group = Group(run, version)
    one = group.member()
    for turn in range(20):
        found = note(run, f"turn {turn}", one.take() if not turn else one.fetch())
        if not found:
            break
        for first, last, _ in found:
            assert one.acknowledge([(first, last, [RELEASE])]) == 0
    one.close()
    one.leave()


BATCHES = (3, 1, 6, 12), (2, 2, 1, 1, 4), (4, 4, 4), (1, 3, 5, 3, 1)
"""How many records the batches after the first have, which come a few at a time."""
TURNS = 32
RECORD_LIMIT = 1
"""The acquire mode, else whole batches come."""
TURNS_BETWEEN = 5
# Limit of records and size of a batch of acquired ones. By whole batches the limit is beyond all:
# where it is reached ours ends with the log's batch, Kafka with that of what was acquired together.
BY_BATCHES = ((500, 500), (500, 2), (500, 4), (500, 1), (500, 3), (500, 6))
EXACTLY = ((1, 500), (2, 500), (5, 2), (500, 4), (3, 1), (7, 3))
PATTERNS = ([ACCEPT, RELEASE, REJECT], [RELEASE], [RELEASE, RELEASE, GAP, ACCEPT])


def acquiring(run: Script, version: int) -> None:
    """Which records a member gets, and which batches come with them, while it says of each record
    another thing.
    """
    _acquire_by_turns(run, version, BY_BATCHES)


def acquiring_exactly(run: Script, version: int) -> None:
    """The same with the mode that counts records."""
    _acquire_by_turns(run, version, EXACTLY, share_acquire_mode=RECORD_LIMIT)


def _acquire_by_turns(
    run: Script, version: int, takes: Sequence[tuple[int, int]], **fields: Any
) -> None:
    group = Group(run, version)
    one = group.member()
    note(run, "first", one.take(max_records=takes[0][0], **fields))
    for turn in range(TURNS):
        if turn % TURNS_BETWEEN == 0:
            for records in BATCHES[turn // TURNS_BETWEEN % len(BATCHES)]:
                group.publish(records)
        max_records, size = takes[turn % len(takes)]
        data = one.fetch(max_records=max_records, batch_size=size, max_wait_ms=0, **fields)
        found = note(run, f"turn {turn}", data)
        pattern = PATTERNS[turn % len(PATTERNS)]
        for first, last, _ in found[: 1 + turn % 3]:
            types = [pattern[offset % len(pattern)] for offset in range(first, last + 1)]
            code = one.acknowledge([(first, last, types)])
            run.answers[f"turn {turn}, {first} to {last}"] = code
    one.close()
    one.leave()


class Conversation:
    """Two members that fetch, and say of records, theirs or not, what comes to somebody's mind."""

    STEPS = 60
    OFFSETS_BEYOND = 3
    SENSIBLE = 0.8
    """How often a member speaks of what it was given."""

    def __init__(self, run: Script, version: int, seed: int) -> None:
        self.run = run
        self.random = random.Random(seed)
        self.group = Group(run, version)
        self.members = [self.group.member() for _ in range(2)]
        self.exactly = {"share_acquire_mode": RECORD_LIMIT} if seed % 2 else {}
        self.end = RECORDS
        first = note(run, "first", self.members[0].take())
        self.given = {self.members[0].member_id: first, self.members[1].member_id: []}
        self.members[1].fetch(max_wait_ms=0)

    def go(self) -> None:
        for step in range(self.STEPS):
            act = self.random.choice((self.publish, self.fetch, self.fetch, self.say, self.say))
            act(f"step {step}", self.random.choice(self.members))
        for member in self.members:
            member.close()
            member.leave()

    def publish(self, label: str, by: RawMember) -> None:
        records = self.random.randint(1, 8)
        self.group.publish(records)
        self.end += records

    def fetch(self, label: str, by: RawMember) -> None:
        max_records = self.random.randint(1, 9) if self.exactly else 500
        size = self.random.randint(1, 9)
        data = by.fetch(max_records=max_records, batch_size=size, max_wait_ms=0, **self.exactly)
        self.given[by.member_id] += note(self.run, f"{label}: fetch", data)

    def say(self, label: str, by: RawMember) -> None:
        acks = []
        first, end = self.random.randint(0, self.end), self.end + self.OFFSETS_BEYOND
        if self.given[by.member_id] and self.random.random() < self.SENSIBLE:
            first, end, _ = self.given[by.member_id].pop()
        for _ in range(self.random.randint(1, 2)):
            last = max(first, min(first + self.random.randint(0, 4), end))
            several = self.random.random() < 0.5
            count = last - first + 1 if several else 1
            types = self.random.choices((GAP, ACCEPT, RELEASE, RELEASE, REJECT), k=count)
            acks.append((first, last, types))
            first = last + self.random.randint(1, 3)
        self.run.answers[f"{label}: {acks}"] = by.acknowledge(acks)


def conversation(run: Script, version: int, seed: int) -> None:
    Conversation(run, version, seed).go()


def note(run: Script, label: str, data: Any) -> list[tuple[int, int, int]]:
    """What a fetch has brought: which records were acquired, how much was sent."""
    found = [] if data is None else ranges(data)
    run.answers[label] = (0 if data is None else len(data.records or b""), found)
    return found


# Renewal


def renewing(run: Script, version: int) -> None:
    group = Group(run, version)
    one = group.member()
    one.take()
    none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renews = {"is_renew_ack": True}
    acks = [(0, 1, [RENEW])]
    group.fetch("nothing asked", one, one._next(), acks, **renews, **none)
    for field in none:
        group.fetch(f"{field} asked", one, one.epoch, acks, **renews, **none | {field: 1})
    group.fetch("renew and accept", one, one._next(), [(0, 1, [RENEW, ACCEPT])], **renews, **none)
    group.fetch("accept alone", one, one._next(), [(2, 2, [ACCEPT])], **renews, **none)
    group.fetch("beyond", one, one._next(), [(20, 20, [RENEW])], **renews, **none)
    group.acknowledge("acknowledge", one, one._next(), acks, **renews)
    group.acknowledge("renew one", one, one._next(), [(0, 0, [RENEW])], **renews)
    group.acknowledge("what is not held", one, one._next(), [(2, 2, [RENEW])], **renews)
    group.acknowledge("not said", one, one._next(), [(3, 3, [RENEW])])
    group.acknowledge("renew at the end", one, FINAL, [(3, 3, [RENEW])], **renews)
    one.leave()


def renewing_disabled(run: Script, version: int) -> None:
    group = Group(run, version, share_renew_acknowledge_enable="false")
    one = group.member()
    one.take()
    none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renews = {"is_renew_ack": True}
    group.fetch("fetch", one, one._next(), [(0, 1, [RENEW])], **renews, **none)
    group.acknowledge("acknowledge", one, one._next(), [(0, 1, [RENEW])], **renews)
    group.acknowledge("with others", one, one._next(), [(0, 1, [ACCEPT, RENEW])], **renews)
    one.close()
    one.leave()


# Membership


def heartbeats(run: Script, version: int) -> None:
    group = Group(run, version)

    def ask(label: str, epoch: int, topics: list[str] | None = None, **fields: Any) -> None:
        base = {
            "group_id": group.id,
            "member_id": "m",
            "member_epoch": epoch,
            "subscribed_topic_names": topics,
        }
        run.ask(label, ShareGroupHeartbeatRequest(**(base | fields)), 1)

    names = [group.topic.name]
    ask("no group", JOIN, names, group_id="")
    ask("no member", JOIN, names, member_id="")
    ask("long member", JOIN, names, member_id="m" * 37)
    ask("no topics", JOIN)
    ask("empty rack", JOIN, names, rack_id="")
    ask("epoch -2", -2)
    ask("group that is not there", 1, group_id=f"{group.id}-nobody")
    ask("leave a group that is not there", LEAVE, group_id=f"{group.id}-nobody")
    one = group.member()
    ask("unknown member", 1, member_id="unknown")
    ask("unknown member leaves", LEAVE, member_id="unknown")
    ask("later epoch", one.member_epoch + 5, member_id=one.member_id)
    ask("earlier epoch", one.member_epoch - 3, member_id=one.member_id)
    others = [group.member() for _ in range(SESSIONS_MAX - 1)]
    ask("one too many", JOIN, names, member_id="more")
    for member in (one, *others):
        member.leave()


# By hand


def by_hand(run: Script, version: int) -> None:
    group = Group(run, version)
    one = group.member()
    one.take()
    assert one.acknowledge([(0, 2, [ACCEPT])]) == 0
    nobody = f"{group.id}-nobody"
    _ask_by_hand(group, "full", group.id)
    _ask_by_hand(group, "unknown", nobody)
    one.close()
    one.leave()
    _ask_by_hand(group, "empty", group.id)
    run.ask("delete the group", DeleteGroupsRequest(groups_names=[group.id, nobody]), 2)
    describe = ShareGroupDescribeRequest(group_ids=[group.id])
    run.ask("describe what was deleted", describe, 1)


def _ask_by_hand(group: Group, label: str, group_id: str) -> None:
    run, topic = group.run, group.topic.name
    if label != "full":
        run.ask(f"{label}, describe", ShareGroupDescribeRequest(group_ids=[group_id]), 1)
    named = {
        "all": None,
        "none": [],
        "both": [DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0, 1])],
        "unknown topic": [DescribeShareGroupOffsetsRequestTopic(topic_name="nope", partitions=[0])],
    }
    for version in (0, 1):
        for what, topics in named.items():
            asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
            request = DescribeShareGroupOffsetsRequest(groups=[asked])
            run.ask(f"{label}, offsets, {what}, version {version}", request, version)
    for what, (name, partition, offset) in {
        "alter": (topic, 0, 5),
        "alter to negative": (topic, 0, -1),
        "alter beyond": (topic, 0, 500),
        "alter unknown partition": (topic, 9, 0),
        "alter unknown topic": ("nope", 0, 0),
    }.items():
        moved = AlterShareGroupOffsetsRequestPartition(
            partition_index=partition, start_offset=offset
        )
        asked_topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[moved])
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=[asked_topic])
        run.ask(f"{label}, {what}", request, 0)
    for name in (topic, "nope"):
        forgotten = DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=[forgotten])
        run.ask(f"{label}, delete offsets of {name == topic}", request, 0)
    if label == "full":
        run.ask("full, delete", DeleteGroupsRequest(groups_names=[group_id]), 2)


TWICE: tuple[Callable[[Script, int], None], ...] = (
    sessions,
    session_limit,
    acknowledging,
    acknowledging_by_fetch,
    deliveries,
    acquiring,
)
ONCE: tuple[Callable[[Script, int], None], ...] = (
    acquiring_exactly,
    renewing,
    renewing_disabled,
    heartbeats,
    by_hand,
)
SCRIPTS: dict[str, Callable[[Script], None]] = {
    f"{script.__name__}-{version}": partial(script, version=version)
    for scripts, versions in ((TWICE, VERSIONS), (ONCE, VERSIONS[-1:]))
    for script in scripts
    for version in versions
} | {f"conversation-{seed}": partial(conversation, version=2, seed=seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def referee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("share-kafka"), SETTINGS) as broker:
        enable_feature(broker.bootstrap, SHARE_VERSION)
        yield broker


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with NodeProcess(tmp_path_factory.mktemp("share-node"), SETTINGS) as broker:
        yield broker


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_brokers_agree(referee: BrokerProcess, tested: BrokerProcess, name: str) -> None:
    found = compare(SCRIPTS[name], name.replace("_", "-"), referee, tested)
    script = name.rpartition("-")[0]
    allowed = [re.compile(pattern) for named, pattern, _ in DEVIATIONS if named == script]
    left = [line for line in found if not any(pattern.search(line) for pattern in allowed)]
    assert not left, f"{len(left)} differences, as Kafka's | ours:\n" + "\n".join(left)
