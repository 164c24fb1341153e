"""Dead letters while nodes die, step by step: each record that was given up becomes one, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import PenstockError
from penstock.coordinating.transactional_writer import TransactionalWriter
from penstock.metadata.features import SHARE_VERSION
from penstock.peers.connection import PeerConnection
from penstock.serving.dead_letter_topics import ENABLE
from penstock.serving.dead_letters import DeadLetterDriver
from penstock.share.types import ShareKey
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.records import Record, build_batch
from support.calls import RawTopic, produce_request
from support.committed import committed_records
from unit.net.served import run
from unit.serving.cluster_rig import Nodes, nodes
from unit.serving.rig import until
from unit.serving.share_rig import GROUP, REJECT, ShareMember
from unit.serving.test_dead_letters import DLQ, GROUPS, configure, offsets

RECORDS = 20
REJECTED = [n for n in range(RECORDS) if n % 3]
FEW = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_min_isr": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "share_coordinator_state_topic_min_isr": "1",
}


class Calls:
    """A connection as the members of the other tests use it."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection

    async def call(self, request: Any, version: int) -> Any:
        return await self._connection.send(request, version)


class Cluster:
    """Three nodes, a partition whose leader coordinates no transactions, and its dead letters."""

    def __init__(self, cluster: Nodes) -> None:
        self.nodes = cluster
        self.topic = RawTopic("t", b"")
        self.index = 0

    async def begin(self) -> None:
        cluster = self.nodes
        enabled = [CreatableTopicConfig(name=ENABLE, value="true")]
        topics = [
            CreatableTopic(name="t", num_partitions=3, replication_factor=3),
            CreatableTopic(name=DLQ, num_partitions=3, replication_factor=3, configs=enabled),
        ]
        peer = Calls(await cluster.peer(1))
        await peer.call(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 7)
        for name in ("t", DLQ):
            await cluster.all_know(name)
        for node_id in cluster.running:
            cluster.broker(node_id).metadata.features[SHARE_VERSION] = 2
        self.topic = RawTopic("t", cluster.broker(1).metadata.topics["t"].id)
        await configure(
            peer,  # type: ignore[arg-type]
            GROUPS,
            GROUP,
            errors_deadletterqueue_topic_name=DLQ,
        )
        writer = TransactionalWriter(cluster.broker(1).writers, "makes the internal topics")
        await writer.open()
        await writer.committed("makes them, too", [])
        self.index = next(i for i in range(3) if self.leader("t", i) != self.coordinator)
        places = {(self.topic.id, self.index): (0, 0)}
        codes = await cluster.broker(1).persister.initialize(GROUP, places)
        assert not any(codes.values()), codes

    def leader(self, topic: str, index: int) -> int:
        image = self.nodes.broker(next(iter(self.nodes.running))).metadata
        return image.topics[topic].partitions[index].leader

    @property
    def coordinator(self) -> int:
        return self.leader("__transaction_state", 0)

    @property
    def source_leader(self) -> int:
        return self.leader("t", self.index)

    async def publish(self) -> None:
        peer = await self.nodes.peer(self.source_leader)
        records = build_batch([Record(0, 1_000, None, b"%d" % n) for n in range(RECORDS)])
        request = produce_request(self.topic, records, 12, partition=self.index)
        request.acks, request.timeout_ms = -1, 10_000
        answer = await peer.send(request, 12)
        assert answer.responses[0].partition_responses[0].error_code == 0

    async def member(self, name: str) -> ShareMember:
        """One that has fetched from the leader, so that the state is loaded there."""
        while True:
            try:
                peer: Any = Calls(await self.nodes.peer(self.source_leader))
                member = ShareMember(peer, self.topic, name)
                answer = await member.fetch([self.index], max_wait_ms=500)
                parts = [p for topic in answer.responses for p in topic.partitions]
                if not answer.error_code and not any(p.error_code for p in parts):
                    return member
            except (PenstockError, OSError):
                pass
            await asyncio.sleep(0.05)

    async def rejects(self) -> None:
        member = await self.member("first")
        each = [1 if n not in REJECTED else REJECT for n in range(RECORDS)]
        answer = await member.acknowledge((0, RECORDS - 1, each), partition=self.index)
        assert answer.responses[0].partitions[0].error_code == 0

    def written(self) -> list[int]:
        """The offsets of what a reader of committed records finds."""
        leader = self.leader(DLQ, self.index)
        if leader not in self.nodes.running:
            return []
        try:
            partition = self.nodes.broker(leader).replicas.leader_of(DLQ, self.index)
        except PenstockError:
            return []
        return offsets(committed_records(partition))

    async def settled(self) -> None:
        """Nothing is under way any more."""
        key = ShareKey(GROUP, self.topic.id, self.index)

        def idle() -> bool:
            try:
                driver = self.nodes.broker(self.source_leader).share.partitions.found(key)
            except PenstockError:
                return False
            core = driver.core
            return (
                core is not None
                and not core.waiting_dead_letters
                and not driver.dead_letters.is_busy
                and core.start_offset == RECORDS
            )

        await until(idle, 40.0)


@asynccontextmanager
async def three(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with nodes(tmp_path, 3, **FEW) as cluster:
        made = Cluster(cluster)
        await made.begin()
        await made.publish()
        yield made


class Step:
    """Where the dead letters of one node stop, once, until the test lets them go on."""

    def __init__(self, patch: pytest.MonkeyPatch, where: str, node_id: int) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._node_id = node_id
        owner, name, before = STEPS[where]
        original: Callable[..., Any] = getattr(owner, name)

        async def stopping(it: Any, *args: Any, **how: Any) -> Any:
            if before:
                await self._stop(it)
                return await original(it, *args, **how)
            answer = await original(it, *args, **how)
            await self._stop(it)
            return answer

        patch.setattr(owner, name, stopping)

    async def _stop(self, it: Any) -> None:
        env = it._env if isinstance(it, TransactionalWriter) else it._env.writers
        if env.node_id == self._node_id and not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()


STEPS: dict[str, tuple[type, str, bool]] = {
    "before the transaction": (TransactionalWriter, "write", True),
    "when all is appended": (TransactionalWriter, "_write_all", False),
    "when it is committed": (TransactionalWriter, "_end", False),
    "when it is persisted": (DeadLetterDriver, "_settle", False),
    "when the marker is cleared": (DeadLetterDriver, "_clear", False),
}


@pytest.mark.parametrize("where", STEPS)
def test_the_leader_of_the_partition_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def test() -> None:
        async with three(tmp_path) as it:
            leader = it.source_leader
            step = Step(monkeypatch, where, leader)
            await it.rejects()
            await step.reached.wait()
            await it.nodes.lose(leader)
            await until(lambda: it.source_leader not in (leader, -1), 30.0)
            await it.member("second")
            await it.settled()
            assert it.written() == REJECTED

    run(test)


@pytest.mark.parametrize("where", ["when all is appended", "when it is committed"])
def test_the_coordinator_of_the_transaction_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def test() -> None:
        async with three(tmp_path) as it:
            coordinator = it.coordinator
            step = Step(monkeypatch, where, it.source_leader)
            await it.rejects()
            await step.reached.wait()
            await it.nodes.lose(coordinator)
            step.go_on.set()
            await until(lambda: it.coordinator not in (coordinator, -1), 30.0)
            await it.settled()
            await until(lambda: it.written() == REJECTED, 30.0)

    run(test)
