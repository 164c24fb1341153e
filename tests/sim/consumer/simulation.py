"""A consumer group under members that crash, pause, lose answers and come back.

One seed decides everything. After every step: the group's own invariants, epochs that never go
back, no partition in two hands (neither in the coordinator's books nor among members that it
knows), no needless move, and a log that says what memory says. Members store offsets in
transactions: whoever holds a partition may, though it has not heard of the last epoch yet, and
nobody else. At the end the faults stop, and the group must come to rest with every partition
consumed by a subscriber.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode
from penstock.coordinator.consumer import ConsumerGroup
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.consumer.roster import Roster
from penstock.coordinator.effects import EndTxnMarker
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sim.consumer.classic import ClassicMember
from unit.coordinator_consumer.rig import GROUP, Owned, Rig

TOPICS = ("a", "b", "c", "ab")
REGEXES = ("a.*", "[bc]", "nothing.*")
SESSION_MS = 10_000
REBALANCE_MS = 6_000
REST_ROUNDS = 40
PRODUCERS = range(1, 4)
TARGET_EPOCH_KEY = b"\x00\x06"
"""How the keys of ConsumerGroupTargetAssignmentMetadata begin."""


@dataclass
class Member:
    """A client of the consumer protocol: it gives up at once what it must, and says so later."""

    member_id: str
    instance_id: str | None
    names: list[str] | None
    regex: str | None
    assignor: str | None
    epoch: int = 0
    owned: Owned = field(default_factory=set)
    paused_until_ms: int = 0
    revokes_slowly: bool = False
    """It still consumes what it must give up, until it is asked again."""
    pending: Owned | None = None
    tells_all: bool = True
    answers_lost: int = 0
    """How many of the next answers do not arrive."""


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rig = Rig(
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_assignment_interval_ms=self.random.choice((0, 0, 1_000)),
            # Classic members come and go, but the group is to stay what it is.
            group_consumer_migration_policy="upgrade",
        )
        self.members: list[Member | ClassicMember] = []
        # In a third of the runs all want the same, so that the least number of moves is known.
        self.all_want_the_same = self.random.random() < 0.33
        self.target: dict[str, frozenset[Partition]] = {}
        self.checked_records = 0
        self.made = 0
        self.trace: list[str] = []
        self.epochs: tuple[int, int] = (0, 0)
        self.member_epochs: dict[str, int] = {}
        for name in TOPICS[:2]:
            self.rig.create(name, self.random.randint(1, 6))

    # -- what can happen -----------------------------------------------------------------------

    def run(self, steps: int) -> None:
        actions = (
            [self.heartbeat] * 12
            + [self.pass_time] * 4
            + [self.newcomer, self.lose_answers, self.store, self.end_transaction] * 2
            + [self.pause, self.crash, self.leave, self.resubscribe, self.topic, self.fail_over]
        )
        for _ in range(steps):
            self.random.choice(actions)()
            self.check()
        self.rest()

    def log(self, *what: object) -> None:
        self.trace.append(f"{self.rig.now_ms - 1_000_000:>7} " + " ".join(map(str, what)))

    def newcomer(self) -> None:
        if len(self.members) >= 8:
            return
        if self.random.random() < 0.25:
            some = list(TOPICS) if self.all_want_the_same else self.random.sample(TOPICS, 2)
            self.members.append(ClassicMember(some, SESSION_MS, REBALANCE_MS))
            self.log("new classic", some)
            return
        self.made += 1
        instance = f"i{self.random.randint(1, 3)}" if self.random.random() < 0.3 else None
        if any(m.instance_id == instance for m in self.members if instance):
            return
        names, regex = self.subscription()
        assignor = self.random.choice((None, None, "uniform", "range"))
        member = Member(f"m{self.made}", instance, names, regex, assignor)
        member.revokes_slowly = self.random.random() < 0.3
        self.members.append(member)
        self.log("new", member)
        self.beat(member)

    def subscription(self) -> tuple[list[str] | None, str | None]:
        if self.all_want_the_same:
            return list(TOPICS), None
        if self.random.random() < 0.25:
            return None, self.random.choice(REGEXES)
        count = self.random.randint(1, len(TOPICS))
        return self.random.sample(TOPICS, count), None

    def heartbeat(self) -> None:
        awake = [m for m in self.members if m.paused_until_ms <= self.rig.now_ms]
        if awake:
            self.beat(self.random.choice(awake))

    def pass_time(self) -> None:
        self.rig.advance(self.random.choice((10, 200, 1_000, 3_000, 12_000)))

    def pause(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            member.paused_until_ms = self.rig.now_ms + self.random.randint(1_000, 20_000)
            self.log("pause", member.member_id)

    def lose_answers(self) -> None:
        if self.members:
            self.random.choice(self.members).answers_lost = self.random.choice((1, 1, 4))

    def crash(self) -> None:
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            self.log("crash", member.member_id)

    def leave(self) -> None:
        if not self.members:
            return
        member = self.members.pop(self.random.randrange(len(self.members)))
        if isinstance(member, ClassicMember):
            member.leave(self.rig)
            self.log("leave", member.member_id)
            return
        for_now = member.instance_id is not None and self.random.random() < 0.6
        epoch = -2 if for_now else -1
        answer = self.rig.beat(member.member_id, epoch, instance_id=member.instance_id)
        self.log("leave", member.member_id, epoch, ErrorCode(answer.error_code).name)
        if for_now:
            self.made += 1
            back = Member(
                f"m{self.made}", member.instance_id, member.names, member.regex, member.assignor
            )
            back.paused_until_ms = self.rig.now_ms + self.random.choice((500, 15_000))
            self.members.append(back)

    def resubscribe(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            names, regex = self.subscription()
            if isinstance(member, ClassicMember):
                member.resubscribe(names or ["a"])
                self.log("resubscribe", member.member_id, member.names)
                return
            # Null means unchanged, so what is dropped is said to be empty.
            member.names, member.regex = names or [], regex or ""
            member.tells_all = True
            self.log("resubscribe", member.member_id, names, regex)

    def topic(self) -> None:
        name = self.random.choice(TOPICS)
        count = self.rig.topics.partition_count(name)
        if count is None:
            self.rig.create(name, self.random.randint(1, 6))
        elif self.random.random() < 0.5 and count < 12:
            self.rig.grow(name, count + self.random.randint(1, 3))
        else:
            self.rig.delete(name)
            for member in self.members:
                member.owned = {p for p in member.owned if p[0] != name}
                if isinstance(member, Member) and member.pending is not None:
                    member.pending = {p for p in member.pending if p[0] != name}
        self.log("topic", name, count, "->", self.rig.topics.partition_count(name))

    def fail_over(self) -> None:
        self.log("fail over")
        self.rig.fail_over()

    def store(self) -> None:
        """A member stores an offset of a partition that it consumes, in a transaction."""
        able = [m for m in self.members if m.epoch > 0 and m.owned]
        group = self.group
        if group is None or not able:
            return
        member = self.random.choice(able)
        topic, number = self.random.choice(sorted(member.owned))
        partition = TxnOffsetCommitRequestPartition(
            partition_index=number, committed_offset=self.rig.now_ms
        )
        request = TxnOffsetCommitRequest(
            group_id=GROUP,
            producer_id=self.random.choice(PRODUCERS),
            member_id=member.member_id,
            generation_id=member.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        [answer] = self.rig.send(request, 5).topics
        code = ErrorCode(answer.partitions[0].error_code)
        self.log("store", member.member_id, member.epoch, topic, number, "->", code.name)
        known = group.engine.roster.members.get(member.member_id)
        holds = False
        if known is not None and known.epoch >= 0:
            place = (self.rig.topics.ids[topic], number)
            holds = place in known.progress.assigned or place in known.progress.revoking
        assert holds == (code is ErrorCode.NONE), f"{member.member_id}: {code.name}"
        assert holds or code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)

    def end_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        marker = EndTxnMarker(producer_id, 0, 0, commit=self.random.random() < 0.5)
        self.rig.apply(self.rig.shard.end_transaction(marker, self.rig.now_ms))

    # -- a member's side -----------------------------------------------------------------------

    def beat(self, member: Member | ClassicMember) -> None:
        if isinstance(member, Member):
            self.consumer_beat(member)
        elif member.member_id or self.has_members:
            # To an empty group it would bring the classic protocol.
            self.log(member.beat(self.rig))

    @property
    def has_members(self) -> bool:
        return self.group is not None and not self.group.is_empty

    def consumer_beat(self, member: Member) -> None:
        if member.pending is not None:
            member.owned, member.pending = member.pending, None
        joins = member.epoch == 0
        tells_all = joins or member.tells_all or self.random.random() < 0.2
        answer = self.rig.beat(
            member.member_id,
            member.epoch,
            owned=set() if joins else set(member.owned),
            instance_id=member.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if tells_all else -1,
            subscribed_topic_names=member.names if tells_all else None,
            subscribed_topic_regex=member.regex if tells_all else None,
            server_assignor=member.assignor if tells_all else None,
        )
        code = ErrorCode(answer.error_code)
        given = self.rig.named(answer)
        lost = member.answers_lost > 0
        self.log(
            "beat", member.member_id, member.epoch, sorted(member.owned), "->", code.name,
            answer.member_epoch, None if given is None else sorted(given), "LOST" if lost else "",
        )  # fmt: skip
        if lost:
            member.answers_lost -= 1
            member.tells_all = True
            return
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            member.epoch, member.owned, member.pending = 0, set(), None
            member.tells_all = True
        elif code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            member.epoch, member.owned = 0, set()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.members.remove(member)
        else:
            assert code is ErrorCode.NONE, code
            self.accept(member, answer.member_epoch, given)

    def accept(self, member: Member, epoch: int, given: Owned | None) -> None:
        member.epoch = epoch
        member.tells_all = False
        if given is None:
            return
        surplus = member.owned - given
        if surplus and member.revokes_slowly and self.random.random() < 0.5:
            member.pending = given
            member.owned = given | surplus
        else:
            member.owned = given

    # -- what must hold ------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.rig.shard.groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        group.invariants()
        roster = group.engine.roster
        epochs = (roster.epoch, roster.assignment_epoch)
        assert epochs >= self.epochs, "an epoch of the group went back"
        self.epochs = epochs
        for member_id, known in roster.members.items():
            before = self.member_epochs.get(member_id, 0)
            assert known.epoch >= before or known.epoch == -2, f"epoch of {member_id} went back"
            self.member_epochs[member_id] = max(known.epoch, before)
        self.check_moves(roster)
        for member in self.members:
            known_member = roster.members.get(member.member_id)
            if known_member is None or member.epoch == 0:
                continue
            progress = known_member.progress
            held = progress.assigned.keys() | progress.revoking.keys()
            mine = {
                (self.rig.topics.ids[name], number)
                for name, number in member.owned
                if name in self.rig.topics.ids
            }
            assert mine <= held or known_member.epoch == -2, (
                f"{member.member_id} consumes what is not its own: {mine - held}"
            )
        if self.random.random() < 0.1:
            self.rig.check_replay()

    def check_moves(self, roster: Roster) -> None:
        """A target made for equal subscriptions takes away no more than it must."""
        before, self.target = self.target, dict(roster.target)
        fresh, self.checked_records = self.rig.log[self.checked_records :], len(self.rig.log)
        made = sum(record.key.startswith(TARGET_EPOCH_KEY) for record in fresh)
        wanted = {m.profile.topic_names for m in roster.members.values()}
        plain = all(
            m.profile.server_assignor != "range"
            and m.profile.instance_id is None
            and not m.profile.topic_regex
            for m in roster.members.values()
        )
        if made != 1 or len(wanted) != 1 or not plain:
            return
        alive = frozenset().union(*self.target.values())
        sizes = sorted(
            (len(before.get(m, alive - alive) & alive) for m in self.target), reverse=True
        )
        share, odd = divmod(len(alive), len(self.target))
        least = sum(max(0, n - share - (place < odd)) for place, n in enumerate(sizes))
        moved = sum(len((before[m] - self.target[m]) & alive) for m in before.keys() & self.target)
        assert moved == least, f"{moved} partitions moved where {least} would do"

    def rest(self) -> None:
        """Without further faults all comes to its target, and stays there."""
        self.log("rest")
        if self.members and not self.has_members:
            self.members.append(Member("last", None, ["a"], None, None))
        for member in self.members:
            member.paused_until_ms = member.answers_lost = 0
        for _ in range(REST_ROUNDS):
            for member in list(self.members):
                self.beat(member)
                self.check()
            self.rig.advance(600)
        group = self.group
        if group is None or not self.members:
            return
        assert group.state_name == "Stable", group.state_name
        consumed = [p for m in self.members for p in m.owned]
        assert len(consumed) == len(set(consumed))
        assert set(consumed) == self.wanted(group)
        before = len(self.rig.log)
        for member in self.members:
            self.beat(member)
        assert len(self.rig.log) == before, "a group at rest writes records"

    def wanted(self, group: ConsumerGroup) -> Owned:
        names = group.engine.subscriptions.all_names() & set(self.rig.topics.counts)
        return {(name, n) for name in names for n in range(self.rig.topics.counts[name])}
