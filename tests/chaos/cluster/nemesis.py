"""Brings one fault after the other upon a cluster, from a seed, and records each.

A fault begins, holds, is healed, and has to be recovered from (every replica in sync again, every
partition written to) before the next one; what does not recover in time is a violation. All of it
happens in the caller's thread, which owns the cluster.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError

from penstock.base.errors import ErrorCode
from support.batches import batch, heads
from support.calls import RawTopic, fetch, list_offset, produce_request
from support.cluster import Cluster
from support.raw import Closed, RawClient
from support.waiting import eventually

from .faults import FAULTS, Plan
from .history import Acked, Failed, Fault, Partition, Recorder, Trouble
from .network import FaultyNetwork
from .txn_clients import Workers

QUIET_SECONDS = (0.5, 2.0)
RECOVER_SECONDS_MAX = 60.0
# A session that a fault has interrupted may end, and its node be replaced, after the fault.
SUSPECT_SECONDS = 12.0
PRODUCE_VERSION = 12
PROBE_TIMEOUT_MS = 500
TROUBLE_CHARS_MAX = 2_000
# The answers that say for certain that nothing was written.
REFUSED = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER}
UNSURE = {ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT}


class Nemesis:
    """Knows the cluster, its network and the chances."""

    def __init__(
        self,
        cluster: Cluster,
        network: FaultyNetwork,
        partitions: list[Partition],
        recorder: Recorder,
        seed: int,
    ) -> None:
        self.cluster = cluster
        self.network = network
        self.partitions = partitions
        self.recorder = recorder
        self.chance = random.Random(seed)
        # Until when a node may not know yet that it was replaced.
        self.suspects: dict[int, float] = {}
        self.small_disk: int | None = None
        self.workers: Workers | None = None
        self.doing = "quiet"
        self._probes = 0

    def any_node(self) -> int:
        """A running node, the leader of the metadata rather more often than the others."""
        leader = self.cluster.quorum_leader()
        return leader if self.chance.random() < 0.3 else self.chance.choice(self.cluster.running)

    def others(self, node_id: int) -> list[int]:
        return [other for other in self.cluster.nodes if other != node_id]

    def order(self, names: list[str]) -> Iterator[str]:
        """The faults without end: all of them in a new order each round."""
        while True:
            yield from self.chance.sample(names, len(names))

    def strike(self, name: str) -> Fault | None:
        """One fault from its beginning until the cluster has recovered; None, and a violation, when
        no node answers before it, so that it cannot be aimed.
        """
        try:
            plan = FAULTS[name](self)
            led = self._led(plan.victims)
        except AssertionError as error:
            self._trouble(f"before {name}: {error}"[:TROUBLE_CHARS_MAX])
            return None
        self.doing = f"{name} {','.join(map(str, plan.victims))} {plan.note}".strip()
        if plan.suspect:
            self.suspects.update(dict.fromkeys(plan.victims, math.inf))
        began = self.recorder.now()
        self._try(name, plan.begin)
        self._hold(plan)
        self._try(name, plan.heal)
        healed = self.recorder.now()
        self.doing = f"recovering from {name}"
        recovered = self._recover(name, healed)
        self.suspects.update(dict.fromkeys(self.suspects, recovered + SUSPECT_SECONDS))
        fault = Fault(name, plan.victims, began, healed, recovered, led, plan.note)
        self.recorder.add(fault)
        self.doing = "quiet"
        time.sleep(self.chance.uniform(*QUIET_SECONDS))
        return fault

    def _try(self, name: str, step: Callable[[], None]) -> None:
        """What a fault's step demands of the cluster and does not get is a violation."""
        try:
            step()
        except (AssertionError, OSError) as error:
            self._trouble(f"{name}: {error!r}"[:TROUBLE_CHARS_MAX])

    def _led(self, victims: tuple[int, ...]) -> tuple[Partition, ...]:
        """What the victims lead now; a fault without victims is everybody's."""
        states = self.cluster.partitions(self.partitions[0][0])
        return tuple(
            where for where, state in states.items() if not victims or state.leader in victims
        )

    def _hold(self, plan: Plan) -> None:
        until = time.monotonic() + plan.hold
        if plan.probe:
            self._probe_survivors(plan)
        time.sleep(max(0.0, until - time.monotonic()))

    def _recover(self, name: str, healed: float) -> float:
        """Waits until all is in sync, and every partition has taken what was sent since."""
        try:
            self.cluster.wait_in_sync(self.partitions[0][0], seconds=RECOVER_SECONDS_MAX)
            eventually(lambda: self._written_since(healed), RECOVER_SECONDS_MAX)
        except AssertionError as error:
            text = f"{name} is not recovered from in {RECOVER_SECONDS_MAX} s: {error}"
            self._trouble(text[:TROUBLE_CHARS_MAX])
        return self.recorder.now()

    def _written_since(self, moment: float) -> bool:
        found = set()
        for ack in reversed(self.recorder.events[Acked]):
            if ack.at < moment:
                break
            if ack.called > moment:
                found.add(ack.partition)
        return len(found) == len(self.partitions)

    # Two nodes down

    def _probe_survivors(self, plan: Plan) -> None:
        """Writes are refused, and what the survivor leads can be read."""
        for node_id in self.cluster.running:
            try:
                with self.cluster.raw(node_id) as client:
                    for topic, number in self.partitions:
                        self._probe(client, topic, number)
            except (OSError, Closed) as error:
                self._trouble(f"node {node_id}, the survivor, does not answer: {error!r}")

    def _probe(self, client: RawClient, topic: str, number: int) -> None:
        self._probes += 1
        name, value = RawTopic(topic, bytes(16)), f"probe-{self._probes}"
        called = self.recorder.now()
        request = produce_request(name, batch([value.encode()]), PRODUCE_VERSION, partition=number)
        request.timeout_ms = PROBE_TIMEOUT_MS
        [of_topic] = client.call(request, PRODUCE_VERSION).responses
        [answer] = of_topic.partition_responses
        code, now = answer.error_code, self.recorder.now()
        if code not in REFUSED | UNSURE:
            self._trouble(f"a write with two nodes down is answered with {code}")
        error = KafkaError(code).str()
        failed = Failed(called, now, "probe", (topic, number), value, error, surely=code in REFUSED)
        self.recorder.add(failed)
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return
        end = list_offset(client, name, -2, partition=number)
        read = fetch(client, name, end.offset, 12, partition=number)
        if read.error_code != 0 or (read.high_watermark > end.offset and not heads(read.records)):
            self._trouble(f"{topic}-{number} cannot be read with two nodes down: {read.error_code}")

    def _trouble(self, text: str) -> None:
        self.recorder.add(Trouble(self.recorder.now(), "nemesis", text))
