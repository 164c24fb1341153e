"""Replicas of one partition, a controller, and a network that loses and delays, driven at random.

Logs are lists of (leader epoch, value). The decisions are those of `penstock.replica`; the rest is
the smallest thing that lets them meet. After every step the promises of replication are checked:
nothing committed is lost or changed, every member of the controller's ISR has it, and nobody's high
watermark lies above it.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.replica.divergence import divergence
from penstock.replica.follower import (
    Append,
    AskOffsets,
    AwaitMetadata,
    BackOff,
    Follower,
    Truncate,
)
from penstock.replica.leader import IsrChange, Leader

LAG_MAX_MS = 50
FETCHED_RECORDS_MAX = 3


class Registration(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


class Log:
    """What the decisions see of a log, on a list."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self.log_start_offset = 0
        self.epochs = self

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.records[-1][0] if self.records else -1

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        if not self.records or leader_epoch < 0 or leader_epoch > self.latest_epoch:
            return -1, -1
        below = [(epoch, at) for at, (epoch, _) in enumerate(self.records) if epoch <= leader_epoch]
        if not below:
            return leader_epoch, 0
        return below[-1][0], below[-1][1] + 1


class Answer(NamedTuple):
    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = 0
    diverging_epoch: int = -1
    diverging_end_offset: int = -1
    records: tuple[tuple[int, int], ...] = ()


class Delayed(NamedTuple):
    """An answer on its way to a follower, and what it answers."""

    answer: Answer
    follower: Follower
    offset: int
    last_epoch: int


class Replica:
    def __init__(self, node_id: int, world: World) -> None:
        self.id = node_id
        self._world = world
        self.log = Log()
        self.high_watermark = 0
        self.known: Registration = world.registration
        self.unheard: list[Registration] = []
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.on_its_way: list[Delayed] = []
        self.changes: list[IsrChange] = []
        self.epoch = -1
        self._take_role()

    def restart(self, lost: int) -> None:
        """The process begins anew; the last `lost` records were not on disk."""
        keep = len(self.log.records) - lost
        self.log.records = self.log.records[:keep]
        self.high_watermark = min(self.high_watermark, keep)
        self.known = self._world.registration
        self.unheard = []
        self.on_its_way = []
        self._take_role()

    def hear(self) -> None:
        """The next change of the metadata arrives."""
        before, self.known = self.known, self.unheard.pop(0)
        if self.known.leader_epoch > before.leader_epoch:
            if self.leader is not None and self.known.leader == self.id:
                self.leader.begin_epoch(self.known, self._world.now_ms)
                self.advance()
            else:
                self._take_role()
        elif self.leader is not None:
            self.leader.follow(self.known)
            self.advance()

    def _take_role(self) -> None:
        self.changes = []
        if self.known.leader == self.id:
            self.follower = None
            self.leader = Leader(
                self.id,
                self._world,
                self.known,
                end_offset=len(self.log.records),
                high_watermark=self.high_watermark,
                min_insync_replicas=self._world.min_insync,
                lag_time_max_ms=LAG_MAX_MS,
                now_ms=self._world.now_ms,
            )
            self.advance()
        else:
            self.leader = None
            self.follower = Follower(self.known.leader, self.known.leader_epoch, 100)

    # -- leading ---------------------------------------------------------------------------------

    def append(self, value: int) -> None:
        if self.leader is not None:
            self.log.records.append((self.known.leader_epoch, value))
            self.advance()

    def advance(self) -> None:
        assert self.leader is not None
        before = self.high_watermark
        self.leader.appended(len(self.log.records), self._world.now_ms)
        self.leader.advance(len(self.log.records), self._world.now_ms)
        self.high_watermark = self.leader.high_watermark
        assert self.high_watermark >= before, "a leader's high watermark went back"
        if self.high_watermark > before:
            self._world.committed_by(self)

    def serve(self, request: Request) -> Answer:
        """Answer a follower's fetch."""
        leader = self.leader
        if leader is None:
            return Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if request.leader_epoch < self.known.leader_epoch:
            return Answer(ErrorCode.FENCED_LEADER_EPOCH)
        if request.leader_epoch > self.known.leader_epoch:
            return Answer(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if request.last_epoch >= 0:
            try:
                parted = divergence(
                    self.log, self.known.leader_epoch, request.offset, request.last_epoch
                )
            except ApiError as e:
                return Answer(e.code)
            if parted is not None:
                return Answer(
                    high_watermark=self.high_watermark,
                    diverging_epoch=parted[0],
                    diverging_end_offset=parted[1],
                )
        if request.offset > len(self.log.records):
            return Answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            leader.fetched(
                request.replica, request.offset, 0, request.broker_epoch, self._world.now_ms
            )
        except ApiError as e:
            return Answer(e.code)
        change = leader.expand(request.replica)
        if change is not None:
            self.changes.append(change)
        self.advance()
        some = self.log.records[request.offset : request.offset + FETCHED_RECORDS_MAX]
        return Answer(high_watermark=self.high_watermark, records=tuple(some))

    # -- following -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Fetch from who is believed to lead; the answer is on its way, or lost."""
        follower, world = self.follower, self._world
        if follower is None or follower.leader_id not in world.up:
            return
        request = Request(
            self.id,
            self.epoch,
            follower.leader_epoch,
            len(self.log.records),
            self.log.latest_epoch,
        )
        answer = world.replicas[follower.leader_id].serve(request)
        if world.random.random() < 0.8:
            self.on_its_way.append(Delayed(answer, follower, request.offset, request.last_epoch))

    def receive(self) -> None:
        """One of the answers arrives, not always the first."""
        at = self._world.random.randrange(len(self.on_its_way))
        answer, asked_as, offset, last_epoch = self.on_its_way.pop(at)
        now = (self.follower, len(self.log.records), self.log.latest_epoch)
        if (asked_as, offset, last_epoch) != now:
            return  # it answers a question of before
        step = asked_as.on_answer(answer, self.log, self.high_watermark)
        if isinstance(step, Append):
            self.log.records += answer.records
            end = len(self.log.records)
            self.high_watermark = max(self.high_watermark, min(step.high_watermark, end))
            asked_as.appended(end, step.high_watermark)
        elif isinstance(step, Truncate):
            assert not step.loses_committed, f"{self.id} would cut off what is committed"
            assert step.offset < offset, "a cut that cuts nothing is asked for for ever"
            del self.log.records[step.offset :]
        elif isinstance(step, AskOffsets):
            self._find_range(asked_as)
        else:
            assert isinstance(step, BackOff | AwaitMetadata)

    def _find_range(self, follower: Follower) -> None:
        leader = self._world.replicas[follower.leader_id]
        if leader.leader is None or leader.known.leader_epoch != follower.leader_epoch:
            return
        step = follower.on_offsets(0, len(leader.log.records), self.log, self.high_watermark)
        if isinstance(step, Truncate):
            assert not step.loses_committed
            del self.log.records[step.offset :]


class Request(NamedTuple):
    replica: int
    broker_epoch: int
    leader_epoch: int
    offset: int
    last_epoch: int


class World:
    """The controller's decisions and everything at once; implements `Brokers` for the leaders."""

    def __init__(self, random: Random, count: int, min_insync: int) -> None:
        self.random = random
        self.min_insync = min_insync
        self.now_ms = 1_000
        ids = tuple(range(count))
        self.registration = Registration(ids, ids, 0, 0, 0)
        self.epochs = dict.fromkeys(ids, 0)
        self.up = dict.fromkeys(ids)
        self.committed: list[tuple[int, int]] = []
        self.replicas = {node_id: Replica(node_id, self) for node_id in ids}
        for replica in self.replicas.values():
            replica.epoch = 0
        self._value = 0

    def broker_epoch(self, broker_id: int) -> int | None:
        return self.epochs[broker_id]

    def takes_part(self, broker_id: int) -> bool:
        return broker_id in self.up

    # -- the controller --------------------------------------------------------------------------

    def _publish(self, registration: Registration) -> None:
        self.registration = registration
        for node_id in self.up:
            self.replicas[node_id].unheard.append(registration)

    def _elect(self, leader: int, isr: tuple[int, ...]) -> None:
        now = self.registration
        self._publish(
            now._replace(
                leader=leader,
                isr=isr,
                leader_epoch=now.leader_epoch + 1,
                partition_epoch=now.partition_epoch + 1,
            )
        )

    def alter(self, replica: Replica) -> None:
        """A wanted change of the ISR reaches the controller; its answer may get lost."""
        change = replica.changes.pop(0)
        leader, now = replica.leader, self.registration
        if leader is None or leader.pending is not change:
            return
        code = ErrorCode.NONE
        if (replica.id, change.leader_epoch) != (now.leader, now.leader_epoch):
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif change.partition_epoch != now.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            node_id not in self.up or epoch not in (-1, self.epochs[node_id])
            for node_id, epoch in change.isr
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        if not code:
            self._publish(now._replace(isr=change.members, partition_epoch=now.partition_epoch + 1))
        if self.random.random() < 0.2:
            replica.changes.append(change)  # no answer: asked again
        elif code:
            if leader.refused(change, code):
                replica.changes.append(change)
        else:
            now = self.registration
            leader.altered(change, now.isr, now.leader_epoch, now.partition_epoch)
            replica.advance()

    # -- what can happen -------------------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += self.random.randrange(4)
        up = [self.replicas[node_id] for node_id in self.up]
        replica = self.random.choice(up)
        event = self.random.choices(
            ("append", "ask", "receive", "hear", "alter", "lag", "crash", "start", "move"),
            (20, 30, 30, 15, 15, 3, 2, 4, 2),
        )[0]
        if event == "append":
            self._value += 1
            replica.append(self._value)
        elif event == "ask":
            replica.ask()
        elif event == "receive" and replica.on_its_way:
            replica.receive()
        elif event == "hear" and replica.unheard:
            replica.hear()
        elif event == "alter" and replica.changes:
            self.alter(replica)
        elif event == "lag" and replica.leader is not None:
            self.now_ms += LAG_MAX_MS
            change = replica.leader.shrink(self.now_ms)
            if change is not None:
                replica.changes.append(change)
        elif event == "crash":
            self._crash(replica)
        elif event == "start":
            self._start()
        elif event == "move":
            candidates = [node_id for node_id in self.registration.isr if node_id in self.up]
            if candidates:
                self._elect(self.random.choice(candidates), self.registration.isr)
        self.check()

    def _crash(self, replica: Replica) -> None:
        if len(self.up) == 1:
            return
        now = self.registration
        rest = tuple(node_id for node_id in now.isr if node_id != replica.id)
        if not any(node_id in self.up for node_id in rest):
            return  # the last one in sync must not lose anything: nobody could stand in for it
        del self.up[replica.id]
        if now.leader == replica.id:
            leader = self.random.choice([node_id for node_id in rest if node_id in self.up])
            self._elect(leader, rest)
        elif replica.id in now.isr:
            self._publish(now._replace(isr=rest, partition_epoch=now.partition_epoch + 1))

    def _start(self) -> None:
        down = [node_id for node_id in self.epochs if node_id not in self.up]
        if down:
            node_id = self.random.choice(down)
            replica = self.replicas[node_id]
            self.epochs[node_id] += 1
            replica.epoch = self.epochs[node_id]
            self.up[node_id] = None
            replica.restart(self.random.randrange(len(replica.log.records) + 1))

    def heal(self) -> None:
        """Everybody is up and hears everything; nothing is lost from here on."""
        while len(self.up) < len(self.epochs):
            self._start()
        for _ in range(400):
            for replica in self.replicas.values():
                while replica.unheard:
                    replica.hear()
                replica.ask()
                while replica.on_its_way:
                    replica.receive()
                while replica.changes:
                    self.alter(replica)
                    while replica.unheard:
                        replica.hear()
                self.check()

    # -- what must hold --------------------------------------------------------------------------

    def committed_by(self, leader: Replica) -> None:
        """A leader's high watermark has moved."""
        seen = leader.log.records[: leader.high_watermark]
        both = min(len(seen), len(self.committed))
        assert seen[:both] == self.committed[:both], "what was committed has changed"
        if len(seen) > both:
            self.committed = seen

    def check(self) -> None:
        for node_id in self.registration.isr:
            have = self.replicas[node_id].log.records[: len(self.committed)]
            assert have == self.committed, f"{node_id} is in sync and lacks what is committed"
        for replica in self.replicas.values():
            mark = replica.high_watermark
            assert mark <= len(self.committed), "a watermark above what is committed"
            if replica.id in self.up:
                assert replica.log.records[:mark] == self.committed[:mark]
