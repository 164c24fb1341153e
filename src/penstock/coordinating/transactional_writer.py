"""A transactional producer of the node itself: records and the offsets of a group, all or nothing.

Duty: take record batches for any partitions and positions of one group, and write them in one
transaction, through the coordinators and leaders that a client would use: those of this node are
asked directly (`LocalNode`), the others over `peers`. Who writes is known by a transactional id;
`open` fences whoever had it before, and aborts what that one had begun.

A write is COMMITTED, or has FAILED and nothing of it will ever be seen. If that cannot be known
(the coordinator has not answered the end of the transaction), or if another has opened the id, it
is FENCED: the writer refuses to go on. To resolve it, `open` again, which waits until the last
transaction is over, and read with `committed` which positions were written. So the positions of a
write have to differ from the ones before, by the offset or by the metadata.

`open` takes the id from whoever has it. Where a newer owner could exist, the caller has to find out
after `open` and before it writes.

Each transaction has an epoch of its own, in which sequence numbers begin with 0: in transactions
version 2 by its end, in version 1 by InitProducerId before the next one, which names the epoch
before and so takes the id from nobody.

Limits: one batch per partition and write, one write at a time, `STEP_S_MAX` for each step,
`TRANSACTION_TIMEOUT_MS`. What passes (a coordinator that moves, loads, or is still ending the last
transaction) is tried again with a growing pause. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ApiError, ErrorCode, PenstockError, invariant, known_code
from penstock.base.ids import TopicPartition
from penstock.metadata.features import TRANSACTION_VERSION
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.partitions.waiting import ACKS_ALL
from penstock.peers.peers import Channel, Peers
from penstock.wire.messages import offset_fetch, txn_offset_commit
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.records import HEADER_SIZE, TRANSACTIONAL_FLAG, assemble, parse_header
from penstock.wire.schema import Message

if TYPE_CHECKING:
    from penstock.coordinating.group_coordinator import GroupCoordinator
    from penstock.coordinating.transaction_coordinator import TransactionCoordinator
    from penstock.metadata.image import MetadataImage
    from penstock.partitions.metadata_brokers import MetadataBrokers

log = logging.getLogger("penstock.coordinating")

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""More than the steps of a write can take together."""
STEP_S_MAX: Final = 10.0
"""How long one step is tried: an answer that passes, or none, is asked for again until then."""
ANSWER_S_MAX: Final = 8.0
APPEND_TIMEOUT_MS: Final = 5_000
RETRY_S: Final = 0.01
"""The first pause; each is twice as long as the one before, up to `RETRY_S_MAX`."""
RETRY_S_MAX: Final = 0.5


class _Versions(NamedTuple):
    """Of requests, as a client of a transactions version sends them."""

    produce: int
    commit: int
    end: int


_VERSION_1: Final = _Versions(11, 4, 4)
_VERSION_2: Final = _Versions(12, 5, 5)
_INIT_VERSION: Final = 5
_ADD_VERSION: Final = 3
_FETCH_VERSION: Final = 9  # the last that names topics by name
_TRANSACTIONS_2: Final = 2

_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        # A node may learn of a new topic later than this one.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""After these a step is tried again."""


class Outcome(Enum):
    COMMITTED = "all of it is written"
    FAILED = "nothing of it is written, nor will be"
    FENCED = "it is not known here what is written: open the writer again and read it"


class Position(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    metadata: str


class GroupPositions(NamedTuple):
    """What a write commits for a group."""

    group_id: str
    positions: Mapping[TopicPartition, Position]


class Written(NamedTuple):
    """What became of a write."""

    outcome: Outcome
    code: ErrorCode = ErrorCode.NONE
    """Why it is not committed."""
    message: str = ""


class LocalNode(Protocol):
    """This node, as its own client: no rights are asked, nothing goes over the network."""

    async def ask(self, request: Message, version: int) -> Any:
        """The response of this node's own leader or coordinator."""


@dataclass(frozen=True, slots=True)
class WriterEnvironment:
    """What all writers of a node share."""

    node_id: int
    image: MetadataImage
    brokers: MetadataBrokers
    peers: Peers
    transactions: TransactionCoordinator
    groups: GroupCoordinator
    here: LocalNode
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    """After which the coordinator aborts a transaction; it may not allow more."""


class _Producer(NamedTuple):
    producer_id: int
    epoch: int


_Codes: TypeAlias = Callable[[Any], "list[int]"]
"""The error codes in a response."""


class TransactionalWriter:
    def __init__(self, env: WriterEnvironment, transactional_id: str) -> None:
        self._env = env
        self.transactional_id = transactional_id
        self._producer: _Producer | None = None
        self._used = False
        """Whether the epoch has been used for a transaction."""

    @property
    def is_open(self) -> bool:
        return self._producer is not None

    # -- opening, and what is committed --------------------------------------------------------

    async def open(self) -> None:
        """Be the one who writes with this id; the transactions before are over then. `ApiError`
        if that is not possible at the moment.
        """
        self._producer = None
        self._producer = await self._init(_Producer(-1, -1))
        self._used = False

    async def _init(self, before: _Producer) -> _Producer:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._env.timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
        )
        answer = await self._answer(self._coordinator, request, _INIT_VERSION, _own_code)
        return _Producer(answer.producer_id, answer.producer_epoch)

    async def committed(
        self, group_id: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """What the group has committed, when no transaction is open that would change it."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[
                offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self._answer(
            lambda: self._env.groups.coordinator_of(group_id), request, _FETCH_VERSION, _fetch_codes
        )
        return {
            TopicPartition(topic.name, found.partition_index): Position(
                found.committed_offset, found.metadata or ""
            )
            for topic in answer.groups[0].topics
            for found in topic.partitions
            if found.committed_offset >= 0
        }

    # -- writing -------------------------------------------------------------------------------

    async def write(
        self, batches: Mapping[TopicPartition, bytes], positions: GroupPositions
    ) -> Written:
        """Write one batch to each of these partitions, and the positions with them. The batches
        are complete but for the fields of their producer.
        """
        invariant(self._producer is not None, f"{self.transactional_id} writes before it is open")
        is_version_2 = self._env.image.features.get(TRANSACTION_VERSION, 0) >= _TRANSACTIONS_2
        versions = _VERSION_2 if is_version_2 else _VERSION_1
        try:
            if self._used and versions is _VERSION_1:
                assert self._producer is not None
                self._producer = await self._init(self._producer)
            self._used = True
            if versions is _VERSION_1:
                await self._add_partitions(batches, positions.group_id)
            await self._write_all(batches, positions, versions)
        except ApiError as error:
            return await self._abort(error, versions)
        try:
            await self._end(versions, commit=True)
        except ApiError as error:
            self._producer = None
            return Written(Outcome.FENCED, error.code, error.message)
        return Written(Outcome.COMMITTED)

    async def _abort(self, error: ApiError, versions: _Versions) -> Written:
        """End a transaction in which a step has failed."""
        try:
            await self._end(versions, commit=False)
        except ApiError as ending:
            # In version 1 there is nothing to abort if nothing has come into the transaction.
            if versions is _VERSION_2 or ending.code != ErrorCode.INVALID_TXN_STATE:
                self._producer = None
                return Written(Outcome.FENCED, error.code, error.message)
        return Written(Outcome.FAILED, error.code, error.message)

    async def _add_partitions(self, batches: Mapping[TopicPartition, bytes], group_id: str) -> None:
        """What in version 2 the writes do themselves."""
        await self._env.groups.coordinator_of(group_id)  # makes the topic of offsets
        index = self._env.groups.partition_of(group_id)
        if index is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no {OFFSETS_TOPIC} yet")
        topics = {OFFSETS_TOPIC: [index]}
        for topic, partition in batches:
            topics.setdefault(topic, []).append(partition)
        producer = self._own()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=p) for name, p in topics.items()
            ],
        )
        await self._answer(self._coordinator, request, _ADD_VERSION, _added_codes)

    async def _write_all(
        self,
        batches: Mapping[TopicPartition, bytes],
        positions: GroupPositions,
        versions: _Versions,
    ) -> None:
        """All at the same time; returns or raises when none of them is under way any more."""
        steps: list[Awaitable[Any]] = [self._commit_positions(positions, versions.commit)]
        steps += [self._append(place, batch, versions.produce) for place, batch in batches.items()]
        ended = await asyncio.gather(*steps, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _append(self, place: TopicPartition, batch: bytes, version: int) -> None:
        producer_id, epoch = self._own()
        header = parse_header(batch)._replace(producer_id=producer_id, producer_epoch=epoch)
        header = header._replace(base_sequence=0, attributes=header.attributes | TRANSACTIONAL_FLAG)
        records = assemble(header, memoryview(batch)[HEADER_SIZE:])
        data = PartitionProduceData(index=place.partition, records=records)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=APPEND_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )

        async def leader() -> int:
            return self._leader(place)

        await self._answer(leader, request, version, _produced_codes)

    async def _commit_positions(self, positions: GroupPositions, version: int) -> None:
        group_id = positions.group_id
        topics: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), (offset, metadata) in positions.positions.items():
            topics.setdefault(topic, []).append(
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        producer = self._own()
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        await self._answer(
            lambda: self._env.groups.coordinator_of(group_id), request, version, _committed_codes
        )

    async def _end(self, versions: _Versions, *, commit: bool) -> None:
        producer = self._own()
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = await self._answer(self._coordinator, request, versions.end, _own_code)
        if versions is _VERSION_2:
            self._producer = _Producer(answer.producer_id, answer.producer_epoch)

    def _own(self) -> _Producer:
        assert self._producer is not None
        return self._producer

    # -- asking --------------------------------------------------------------------------------

    async def _coordinator(self) -> int:
        return await self._env.transactions.coordinator_of(self.transactional_id)

    def _leader(self, place: TopicPartition) -> int:
        topic = self._env.image.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {place}")
        leader = topic.partitions[place.partition].leader
        if leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader")
        return leader

    async def _answer(
        self,
        find: Callable[[], Awaitable[int]],
        request: Message,
        version: int,
        codes: _Codes,
    ) -> Any:
        """The answer without errors; `ApiError` with the last one if none comes in time."""
        loop = asyncio.get_running_loop()
        give_up_s, pause_s = loop.time() + STEP_S_MAX, RETRY_S
        while True:
            try:
                node = await find()
                answer = await self._ask(node, request, version)
                wrong = [code for code in codes(answer) if code]
                if not wrong:
                    return answer
                name = type(request).__name__.removesuffix("Request")
                raise ApiError(known_code(wrong[0]), f"refused by node {node}: {name}")
            except ApiError as error:
                if error.code not in _PASSING or loop.time() + pause_s > give_up_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _ask(self, node: int, request: Message, version: int) -> Any:
        env = self._env
        if node == env.node_id:
            return await env.here.ask(request, version)
        address = env.brokers.address(node)
        if address is None:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, f"node {node} is not registered")
        try:
            return await env.peers.send(address, Channel.WRITER, request, version, ANSWER_S_MAX)
        except ApiError:
            raise
        except PenstockError as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error


# -- the error codes of responses --------------------------------------------------------------


def _own_code(answer: Any) -> list[int]:
    return [answer.error_code]


def _produced_codes(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.responses for p in topic.partition_responses]


def _committed_codes(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.topics for p in topic.partitions]


def _added_codes(answer: Any) -> list[int]:
    return [
        p.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for p in topic.results_by_partition
    ]


def _fetch_codes(answer: Any) -> list[int]:
    codes = [group.error_code for group in answer.groups]
    return codes + [
        p.error_code for group in answer.groups for topic in group.topics for p in topic.partitions
    ]
