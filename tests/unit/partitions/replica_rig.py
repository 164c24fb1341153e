"""Brokers that replicate to each other over loopback sockets, with the metadata in the test's hand.

Each broker is whole: log, replicas, produce and fetch paths, a listener, fetchers. What is missing
is the quorum: a `Stage` hands the same metadata records to all of them, when the test says so, and
answers AlterPartition by the controller's rules of epochs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.api import handlers
from penstock.api.dispatcher import EVERYTHING, Dispatcher
from penstock.base.clock import SystemClock, SystemRng
from penstock.base.errors import ErrorCode
from penstock.config.broker_config import broker_config
from penstock.config.layers import BrokerSettings
from penstock.log.environment import LogEnvironment
from penstock.log.manager import LogManager
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.net.server import Server
from penstock.node.listening import net_limits
from penstock.node.metrics import NodeMetrics
from penstock.partitions.alter_partition_manager import AlterPartitionManager
from penstock.partitions.partition import Partition
from penstock.peers.peers import Peers
from penstock.serving.broker import Broker
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from support.calls import RawTopic
from unit.serving.rig import Peer

TOPIC_ID = b"t" * 16
LISTENER = "PLAINTEXT"


class Committed:
    """One broker's view of the metadata; stands where the quorum's driver stands in a node."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.metadata = self
        self._listener: Callable[[MetadataDelta], None] | None = None

    def on_committed(self, listener: Callable[[MetadataDelta], None]) -> None:
        self._listener = listener

    def apply(self, records: list[Any]) -> None:
        delta = MetadataDelta()
        self.image.apply(records, delta)
        if self._listener is not None:
            self._listener(delta)


class Actor:
    """One broker."""

    def __init__(
        self, stage: Stage, node_id: int, data_dir: Path, settings: dict[str, str]
    ) -> None:
        self.stage = stage
        self.node_id = node_id
        texts = {
            "node.id": str(node_id),
            "log.dirs": str(data_dir),
            "listeners": f"{LISTENER}://127.0.0.1:0",
            "penstock.http.listen": "",
            "replica.fetch.wait.max.ms": "200",
        }
        config = broker_config(texts | {k.replace("_", "."): v for k, v in settings.items()})
        self.metadata = Committed()
        clock, rng = SystemClock(), SystemRng()
        self.logs = LogManager(
            config.data_dir,
            lambda name: self.broker.topic_config(name),
            LogEnvironment(clock=clock, rng=rng),
        )
        self.peers = Peers(f"broker-{node_id}")
        metrics = NodeMetrics(handlers.api_names(), per_topic=True, histograms="full")
        self.broker = Broker(
            BrokerSettings.of(config),
            self.metadata,  # type: ignore[arg-type]
            self.peers,
            self.logs,
            metrics.topics,
            lambda api, code: None,
            clock,
            rng,
        )
        self.broker.controller = stage  # type: ignore[assignment]
        self.broker.cluster._controller = stage  # type: ignore[assignment]
        dispatcher = Dispatcher(self.broker.services)
        dispatcher.open(EVERYTHING)
        limits = net_limits(config)
        self.server = Server(LISTENER, limits, dispatcher, metrics.requests.answered)
        self.host, self.port = self.server.bind("127.0.0.1", 0)
        self.hears = True
        self._missed: list[Any] = []

    async def start(self) -> None:
        self.metadata.apply(self.stage.records)
        await self.server.start()
        self.broker.start_replication()

    def hear(self, records: list[Any]) -> None:
        """The metadata goes on; a broker that does not hear catches up later."""
        self._missed += records
        if self.hears:
            missed, self._missed = self._missed, []
            self.metadata.apply(missed)

    def listen_again(self) -> None:
        self.hears = True
        self.hear([])

    def partition(self, index: int = 0) -> Partition:
        return self.broker.replicas.replica_of(TOPIC_ID, index)

    def opened(self, index: int = 0) -> Partition | None:
        return self.broker.replicas._hosted.get(TOPIC_ID, {}).get(index)

    @property
    def isr_changes(self) -> AlterPartitionManager:
        assert self.broker.replication is not None
        return self.broker.replication.isr_changes

    async def peer(self) -> Peer:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 26)
        return Peer(reader, writer, None)  # type: ignore[arg-type]

    async def stop(self) -> None:
        self.broker.end_waiting()
        self.server.hurry()
        await self.server.stop(0.0)
        await self.broker.stop()
        self.peers.close()
        self.logs.close()

    async def crash(self) -> None:
        """End without closing anything: what is not in the files is lost."""
        self.server.hurry()
        await self.server.stop(0.0)
        replication = self.broker.replication
        assert replication is not None
        for fetcher in replication._fetchers.values():
            await fetcher.stop()
        for duty in replication._duties:
            duty.cancel()
        await replication.isr_changes.stop()
        self.peers.close()
        for log in self.logs.opened():
            log.release()
        self.logs._logs.clear()
        os.close(self.logs._lock_fd)


class Stage:
    """All brokers, and the metadata that they hear of."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._folder = folder
        self._settings = settings
        self.records: list[Any] = []
        self.actors: dict[int, Actor] = {}
        self.image = MetadataImage()
        self.refuse_isr_changes = False
        self.alterations: list[tuple[int, tuple[int, ...]]] = []
        self._broker_epoch = 0
        self.id = -1  # as `ControllerAccess` has it

    @property
    def committed_offset(self) -> int:
        return len(self.records)

    async def enter(self, node_id: int, **settings: str) -> Actor:
        """A broker starts (again) and is registered."""
        actor = Actor(self, node_id, self._folder / f"node-{node_id}", self._settings | settings)
        self._broker_epoch += 1
        self.actors[node_id] = actor
        self.publish(
            RegisterBrokerRecord(
                broker_id=node_id,
                incarnation_id=bytes([node_id]) * 16,
                broker_epoch=self._broker_epoch,
                end_points=[BrokerEndpoint(name=LISTENER, host=actor.host, port=actor.port)],
                rack=actor.broker.config.broker_rack,
                fenced=False,
            ),
            but=node_id,
        )
        await actor.start()
        return actor

    async def leave(self, node_id: int, *, crash: bool = False, fence: bool = True) -> None:
        actor = self.actors.pop(node_id)
        await (actor.crash() if crash else actor.stop())
        if fence:
            epoch = self.image.brokers[node_id].epoch
            self.publish(
                BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=epoch, fenced=1)
            )

    def publish(self, *records: Any, but: int | None = None) -> None:
        self.records += records
        self.image.apply(records, MetadataDelta())
        for node_id, actor in self.actors.items():
            if node_id != but:
                actor.hear(list(records))

    # -- what the controller decides -------------------------------------------------------------

    def topic(self, *replicas: int, partitions: int = 1, **config: str) -> RawTopic:
        """Make the topic `t`; settings with `_` for `.`."""
        self.publish(
            TopicRecord(name="t", topic_id=TOPIC_ID),
            *(
                ConfigRecord(resource_type=2, resource_name="t", name=k.replace("_", "."), value=v)
                for k, v in config.items()
            ),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partitions)
            ),
        )
        return RawTopic("t", TOPIC_ID)

    def change(self, index: int = 0, **fields: Any) -> None:
        self.publish(PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, **fields))

    def elect(self, leader: int, isr: list[int] | None = None, index: int = 0) -> None:
        self.change(index, leader=leader, isr=isr)

    def isr(self, index: int = 0) -> tuple[int, ...]:
        found = self.image.partition(TOPIC_ID, index)
        assert found is not None
        return found.isr

    async def ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """As `ControllerAccess` has it; the brokers of these tests ask for nothing else."""
        await asyncio.sleep(0)
        return AlterPartitionResponse(
            topics=[
                ResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[self._alter(request.broker_id, p) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _alter(self, broker_id: int, wanted: Any) -> ResponsePartitionData:
        index = wanted.partition_index
        now = self.image.partition(TOPIC_ID, index)
        assert now is not None
        members = [m.broker_id for m in wanted.new_isr_with_epochs]
        code = ErrorCode.NONE
        if self.refuse_isr_changes:
            code = ErrorCode.INELIGIBLE_REPLICA
        elif now.leader_epoch != wanted.leader_epoch or now.leader != broker_id:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif now.partition_epoch != wanted.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            m.broker_epoch not in (-1, self.image.brokers[m.broker_id].epoch)
            for m in wanted.new_isr_with_epochs
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        if code:
            return ResponsePartitionData(partition_index=index, error_code=code)
        self.alterations.append((index, tuple(members)))
        self.change(index, isr=members)
        after = self.image.partition(TOPIC_ID, index)
        assert after is not None
        return ResponsePartitionData(
            partition_index=index,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            partition_epoch=after.partition_epoch,
        )


@asynccontextmanager
async def staged(folder: Path, *node_ids: int, **settings: str) -> AsyncIterator[Stage]:
    stage = Stage(folder, settings)
    try:
        for node_id in node_ids:
            await stage.enter(node_id)
        yield stage
    finally:
        for node_id in list(stage.actors):
            await stage.leave(node_id)
