"""The topic `__audit`: made when it is first needed, and appended to by nodes alone.

A node appends to a partition that it leads, or sends a Produce request to a node that leads one.
Such a request names, as its transactional id, the node and the incarnation under which it has
registered; that is a number of 16 bytes which no answer to a client carries. It is believed from
who has CLUSTER_ACTION, and takes no other way to the log: every other Produce to the topic is
refused (`InternalTopicRules`), whoever sends it.

The topic gets `PARTITIONS`, and as many replicas as `offsets.topic.replication.factor` asks for. It
is not made before so many brokers are there, of those that the quorum was set up with, or
`BROKERS_WAIT_S_MAX` is over. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.auth.types import Operation
from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, PenstockError, StorageError
from penstock.base.ids import uuid_text
from penstock.base.results import PartitionAnswer
from penstock.config.broker_config import BrokerConfig
from penstock.log.log import Batch
from penstock.metadata.image import MetadataImage
from penstock.metadata.names import AUDIT_TOPIC
from penstock.partitions.metadata_brokers import MetadataBrokers
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.waiting import ACKS_ALL
from penstock.peers.connection import Address
from penstock.peers.peers import Channel, Peers
from penstock.serving.append import AUDIT_OF_NODE, AppendRequest, AppendResult
from penstock.serving.rights import Rights
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.records import Record, build_batch, check_batch

PARTITIONS: Final = 3
COMMIT_TIMEOUT_S: Final = 5.0
BROKERS_WAIT_S_MAX: Final = 30.0
_BY_NAME: Final = 12  # the last version of Produce that names topics
_DENIED: Final = ApiError(
    ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is the cluster's own: only nodes write to it"
)


class _Append:
    """One batch, until it is committed."""

    __slots__ = ("_timer", "code")
    outlives_leadership = False  # it is sent again, to the next leader

    def __init__(self) -> None:
        self.code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def waits(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(COMMIT_TIMEOUT_S, self._ended, ErrorCode.REQUEST_TIMED_OUT)

    def appended(self) -> None:
        self._ended(ErrorCode.NONE)

    def failed(self, code: ErrorCode, message: str) -> None:
        self._ended(code)

    def _ended(self, code: ErrorCode) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.code.done():
            self.code.set_result(code)


class AuditTopic:
    def __init__(
        self,
        config: BrokerConfig,
        image: MetadataImage,
        replicas: ReplicaManager,
        brokers: MetadataBrokers,
        peers: Peers,
        clock: Clock,
        rights: Rights,
        create_topic: Callable[[CreatableTopic], Awaitable[ErrorCode]],
    ) -> None:
        self._config = config
        self._node_id = config.node_id
        self._image = image
        self._replicas = replicas
        self._brokers = brokers
        self._peers = peers
        self._clock = clock
        self._rights = rights
        self._create_topic = create_topic
        self._loop = asyncio.get_running_loop()
        self._first_try_s: float | None = None
        self._turn = self._node_id  # which leader is asked, where none is here
        self._answering: set[asyncio.Future[ErrorCode]] = set()

    # -- writing -------------------------------------------------------------------------------

    async def write(self, values: list[bytes]) -> None:
        """Append a batch of events; `PenstockError` if it may not be there."""
        if AUDIT_TOPIC not in self._image.topics:
            await self._make()
        now_ms = self._clock.now_ms()
        data = build_batch([Record(0, now_ms, None, value) for value in values])
        led = self._led_here()
        if led is not None:
            code = await self._stage(led, data)
        else:
            code = await self._send(data)
        if code != ErrorCode.NONE:
            raise ApiError(code, f"a partition of {AUDIT_TOPIC} answers {code.name}")

    def _led_here(self) -> Partition | None:
        for index in range(len(self._image.topics[AUDIT_TOPIC].partitions)):
            try:
                partition = self._replicas.leader_of(AUDIT_TOPIC, index)
            except PenstockError:
                continue
            if not partition.under_min_isr:
                return partition
        return None

    def _stage(self, partition: Partition, data: bytes) -> asyncio.Future[ErrorCode]:
        if partition.under_min_isr:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        append = _Append()
        batch = Batch(check_batch(data), data)
        partition.stage(batch, self._clock.now_ms(), ACKS_ALL, append)
        return append.code

    async def _send(self, data: bytes) -> ErrorCode:
        index, address = self._leader_elsewhere()
        topic = TopicProduceData(
            name=AUDIT_TOPIC, partition_data=[PartitionProduceData(index=index, records=data)]
        )
        request = ProduceRequest(
            transactional_id=self._proof(),
            acks=ACKS_ALL,
            timeout_ms=int(COMMIT_TIMEOUT_S * 1000),
            topic_data=[topic],
        )
        response = await self._peers.send(
            address, Channel.AUDIT, request, _BY_NAME, timeout_s=2 * COMMIT_TIMEOUT_S
        )
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def _leader_elsewhere(self) -> tuple[int, Address]:
        """Another one at each call: one that does not answer does not hold up the log."""
        partitions = self._image.topics[AUDIT_TOPIC].partitions
        self._turn += 1
        for step in range(len(partitions)):
            index = (self._turn + step) % len(partitions)
            leader = partitions[index].leader
            address = self._brokers.address(leader)
            if address is not None and leader != self._node_id and self._brokers.takes_part(leader):
                return index, address
        raise ApiError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {AUDIT_TOPIC} has a leader"
        )

    def _proof(self) -> str:
        own = self._image.brokers.get(self._node_id)
        if own is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "this node is not registered")
        return proof(self._node_id, own.incarnation_id)

    # -- making the topic ----------------------------------------------------------------------

    async def _make(self) -> None:
        wanted = self._config.offsets_topic_replication_factor
        expected = min(wanted, max(1, len(self._config.first_voters)))
        brokers = len(self._image.brokers)
        if self._first_try_s is None:
            self._first_try_s = self._loop.time()
        if brokers < expected and self._loop.time() < self._first_try_s + BROKERS_WAIT_S_MAX:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "more brokers are expected")
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(self._config.penstock_audit_retention_ms),
            "retention.bytes": "-1",
        }
        code = await self._create_topic(
            CreatableTopic(
                name=AUDIT_TOPIC,
                num_partitions=PARTITIONS,
                replication_factor=min(wanted, brokers),
                configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
            )
        )
        if AUDIT_TOPIC not in self._image.topics:
            raise ApiError(code, f"{AUDIT_TOPIC} is being created")

    # -- what another node sends ---------------------------------------------------------------

    def take(self, request: AppendRequest, done: Callable[[AppendResult], None]) -> None:
        """Append the events of another node; `request` has `AUDIT_OF_NODE` in its transactional
        id.
        """
        topics, request.topics = request.topics, []
        result = AppendResult()
        try:
            self._check_node(request)
            [(topic, [(index, records)])] = topics
            if topic != AUDIT_TOPIC:
                raise _DENIED
            staged = self._stage(self._replicas.leader_of(topic, index), bytes(records or b""))
        except (PenstockError, ValueError) as e:
            code = e.code if isinstance(e, ApiError) else ErrorCode.INVALID_REQUEST
            if isinstance(e, StorageError):
                code = ErrorCode.KAFKA_STORAGE_ERROR
            result.failed = True
            result.topics = [
                (topic, [PartitionAnswer(index, code, error_message=str(e)) for index, _ in parts])
                for topic, parts in topics
            ]
            done(result)
            return
        result.topics = [(topic, [])]
        self._answering.add(staged)
        staged.add_done_callback(lambda code: self._committed(code, index, result, done))

    def _committed(
        self,
        code: asyncio.Future[ErrorCode],
        index: int,
        result: AppendResult,
        done: Callable[[AppendResult], None],
    ) -> None:
        self._answering.discard(code)
        outcome = ErrorCode.BROKER_NOT_AVAILABLE if code.cancelled() else code.result()
        result.failed = outcome != ErrorCode.NONE
        result.topics[0][1].append(PartitionAnswer(index, outcome))
        done(result)

    def _check_node(self, request: AppendRequest) -> None:
        given = request.transactional_id or ""
        id_text = given.removeprefix(AUDIT_OF_NODE).partition(":")[0]
        # ASCII, and no more digits than an id has.
        node_id = (
            int(id_text) if id_text.isascii() and id_text.isdigit() and len(id_text) < 11 else -1
        )
        node = self._image.brokers.get(node_id)
        right = node is not None and hmac.compare_digest(
            proof(node_id, node.incarnation_id).encode(), given.encode()
        )
        if not self._rights.cluster(request.principal, Operation.CLUSTER_ACTION) or not right:
            raise _DENIED


def proof(node_id: int, incarnation_id: bytes) -> str:
    """What only the node itself, and nodes that have its registration, know."""
    return f"{AUDIT_OF_NODE}{node_id}:{uuid_text(incarnation_id)}"
