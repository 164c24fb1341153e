"""Who leads has what is committed: a partition's logs, as the controller's decisions move them.

A broker's log is a list of numbers. The leader commits by the rules of `replica/leader.py`, with
what it knows of the followers; a loss of power takes the end of a log. Whatever happens, in
whichever order it is noticed, an election that does not say that it is unclean loses nothing: not
even if all replicas lose power at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError
from penstock.metadata.broker_control import BrokerControl
from penstock.metadata.image import Partition, ResourceType
from penstock.metadata.records import MetadataRecord
from unit.metadata.rig import BROKERS, MIN_ISR, Rig, brokers, command, targets

TOPIC = "a"
INTACT, POWER, DISK = "intact", "power", "disk"

events = st.lists(
    st.one_of(
        command("produce"),
        command("fetch", brokers),
        command("fetch_all"),
        command("advance"),
        command("expand", brokers),
        command("shrink", brokers),
        command("die", brokers, st.sampled_from([INTACT, POWER, POWER, DISK]), st.integers(0, 3)),
        command("notice", brokers),
        command("start", brokers),
        command("stop", brokers),
        command("fail_over"),
        command("tick"),
        command("min_isr", st.integers(1, 3)),
        command("reassign", st.none() | targets),
    ),
    max_size=60,
)


class Logs:
    """One partition on four brokers, three of which have it at first."""

    def __init__(self) -> None:
        self.rig = Rig({MIN_ISR: "2"})
        for broker in range(1, BROKERS + 1):
            self.rig.register(broker)
            self.rig.heartbeat(broker)
        self.rig.create(TOPIC, 1, 3)
        self.rig.move(TOPIC, 0, [1, 2, 3])
        self.rig.watch = self.decided
        self.logs: dict[int, list[int]] = {b: [] for b in range(1, BROKERS + 1)}
        self.down: dict[int, str] = {}
        """How brokers died that have not started again."""
        self.disks = dict.fromkeys(self.logs, 0)
        self.committed: list[int] = []
        self.known: dict[int, int] = {}
        """What the leader knows each follower to have."""
        self.epoch_start = 0
        self.next = 0

    @property
    def partition(self) -> Partition:
        return self.rig.image.topics[TOPIC].partitions[0]

    @property
    def leader(self) -> int | None:
        """Who leads and is alive."""
        leader = self.partition.leader
        return leader if leader >= 0 and leader not in self.down else None

    # -- what happens --------------------------------------------------------------------------

    def produce(self) -> None:
        if self.leader is not None:
            self.next += 1
            self.logs[self.leader].append(self.next)

    def fetch(self, broker: int) -> None:
        leader = self.leader
        if leader in (None, broker) or broker in self.down:
            return
        if leader is not None and broker in self.partition.replicas:
            self.logs[broker] = list(self.logs[leader])
            self.known[broker] = len(self.logs[leader])

    def fetch_all(self) -> None:
        for broker in self.logs:
            self.fetch(broker)

    def advance(self) -> None:
        leader, partition = self.leader, self.partition
        if leader is None:
            return
        # No more can be demanded than there are.
        if len(partition.isr) < min(self.rig.controller._rules.min_isr(TOPIC), self.factor):
            return
        ends = [self.known.get(b, 0) for b in partition.isr if b != leader]
        end = min([len(self.logs[leader]), *ends])
        if end > len(self.committed):
            self.committed = self.logs[leader][:end]

    @property
    def factor(self) -> int:
        return len(self.partition.replicas)

    def expand(self, broker: int) -> None:
        reached = max(len(self.committed), self.epoch_start)
        if self.known.get(broker, -1) >= reached:
            self._alter({*self.partition.isr, broker})

    def shrink(self, broker: int) -> None:
        self._alter(set(self.partition.isr) - {broker})

    def _alter(self, isr: set[int]) -> None:
        if self.leader is not None:
            mask = sum(1 << i for i, b in enumerate(self.partition.replicas) if b in isr)
            self.rig.alter_isr(TOPIC, 0, mask)

    def die(self, broker: int, how: str, lost: int) -> None:
        if broker in self.down:
            return
        self.down[broker] = how
        if how == POWER:
            del self.logs[broker][max(0, len(self.logs[broker]) - lost) :]
        elif how == DISK:
            self.logs[broker] = []
            self.disks[broker] ^= 1

    def notice(self, broker: int) -> None:
        if broker in self.down:
            self.rig.unreachable(broker)

    def start(self, broker: int) -> None:
        if broker in self.down:
            self.rig.unreachable(broker)
            intact = self.down[broker] == INTACT
            self.rig.register(broker, self.disks[broker], intact=intact)
            del self.down[broker]
            self.rig.heartbeat(broker)

    def stop(self, broker: int) -> None:
        if broker not in self.down:
            self.rig.heartbeat(broker, want_shut_down=True)
            self.die(broker, INTACT, 0)

    def fail_over(self) -> None:
        self.rig.take_over()

    def tick(self) -> None:
        for broker in self.logs:
            if broker not in self.down:
                self.rig.heartbeat(broker)
        self.rig.tick(301_000)

    def min_isr(self, replicas: int) -> None:
        self.rig.configure(ResourceType.TOPIC, TOPIC, MIN_ISR, str(replicas))

    def reassign(self, replicas: list[int] | None) -> None:
        self.rig.reassign(TOPIC, 0, replicas)

    # -- what must hold ------------------------------------------------------------------------

    def decided(
        self, before: dict[Any, Partition], records: list[MetadataRecord], kind: str
    ) -> None:
        """A decision was made: what a new leader lacks was given up openly."""
        (old,), new = before.values(), self.partition
        for broker in set(self.logs) - set(new.replicas):
            self.logs[broker] = []
        if new.leader_epoch != old.leader_epoch:
            self.known = {}
        if new.leader < 0 or new.leader_epoch == old.leader_epoch:
            return
        log = self.logs[new.leader]
        if new.recovery_state and new.leader not in (*old.isr, *old.elr):
            while self.committed != log[: len(self.committed)]:
                self.committed.pop()
        self.epoch_start = len(log)

    def check(self) -> None:
        if self.leader is not None:
            log = self.logs[self.leader]
            assert log[: len(self.committed)] == self.committed, self.partition


def play(history: list[tuple[Any, ...]]) -> None:
    world = Logs()
    for name, *arguments in history:
        with suppress(ApiError):
            getattr(world, name)(*arguments)
        world.check()


@settings(max_examples=150, deadline=None)
@given(events)
def test_a_clean_election_loses_nothing(history: list[tuple[Any, ...]]) -> None:
    play(history)


LOST_POWER = [
    ("fetch_all",),
    ("shrink", 3),
    ("produce",),
    ("fetch", 2),
    ("advance",),
    ("die", 2, POWER, 1),
    ("notice", 2),
    ("die", 1, INTACT, 0),
    ("notice", 1),
    ("start", 2),
    ("start", 1),
]


def test_who_lost_power_waits_for_who_did_not() -> None:
    world = Logs()
    for name, *arguments in LOST_POWER[:-1]:
        getattr(world, name)(*arguments)
    assert (world.partition.isr, world.partition.elr, world.leader) == ((), (1,), None)
    world.start(1)
    assert (world.partition.isr, world.partition.elr, world.leader) == ((1,), (), 1)
    assert world.rig.controller.elr_elections_total == 1
    world.check()


def test_who_leads_under_a_smaller_minimum_commits_without_the_others() -> None:
    """The setting changed while nobody led, so that several stayed eligible."""
    play(
        [
            ("shrink", 3),
            ("shrink", 2),
            ("die", 1, INTACT, 0),
            ("die", 2, INTACT, 0),
            ("notice", 2),
            ("notice", 1),
            ("min_isr", 1),
            ("start", 1),
            ("produce",),
            ("advance",),
            ("die", 1, INTACT, 0),
            ("notice", 1),
            ("start", 2),
        ]
    )


def test_the_model_finds_a_replica_that_stays_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = BrokerControl._leave
    monkeypatch.setattr(
        BrokerControl, "_leave", lambda self, broker_id, **more: leave(self, broker_id)
    )
    with pytest.raises(AssertionError):
        play(LOST_POWER)
