"""A transactional producer as clients of both kinds are, with its requests told to the history.

Version 1 adds partitions and groups to its transaction before it uses them and keeps its epoch;
version 2 (KIP-890) just writes, and takes a new epoch from every EndTxn. Requests are repeated, as
they were, until there is an answer that says something or patience is over. Where an answer was
lost, what it would have said is not known, and the history is told so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.records import Record, build_batch
from penstock.wire.schema import Message

from .checks import History, holds
from .clock import EPOCH_MS
from .trace import Trace
from .txn_ghosts import Ghosts, Sent
from .txn_history import Place, Transaction, TxnHistory
from .wire import REQUEST_TIMEOUT_S, Wire, pause

PATIENCE_S = 40.0
RETRY_S = 0.1
IN_FLIGHT_MAX = 5
GROUP, TRANSACTION = 0, 1
VERSION_1, VERSION_2 = 1, 2
"""Of transactions, as KIP-890 counts them."""


class Versions(NamedTuple):
    """Which versions of requests a client of one kind sends."""

    init: int
    produce: int
    offsets: int
    end: int


VERSIONS = {VERSION_1: Versions(4, 11, 4, 4), VERSION_2: Versions(5, 12, 5, 5)}
_E = ErrorCode
AGAIN = frozenset(
    {
        _E.NOT_COORDINATOR,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.CONCURRENT_TRANSACTIONS,
        _E.REQUEST_TIMED_OUT,
        _E.NOT_LEADER_OR_FOLLOWER,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.UNKNOWN_TOPIC_ID,
        _E.NOT_ENOUGH_REPLICAS,
        _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        _E.KAFKA_STORAGE_ERROR,
        _E.NETWORK_EXCEPTION,
        _E.LEADER_NOT_AVAILABLE,
    }
)
"""A client sends the same once more."""
LOST = AGAIN - {_E.COORDINATOR_LOAD_IN_PROGRESS, _E.CONCURRENT_TRANSACTIONS}
"""What was asked for may have happened all the same."""
FENCING = frozenset({_E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH, _E.INVALID_PRODUCER_ID_MAPPING})
ABORTING = frozenset(
    {
        _E.INVALID_TXN_STATE,
        _E.TRANSACTION_ABORTABLE,
        _E.UNKNOWN_MEMBER_ID,
        _E.ILLEGAL_GENERATION,
        _E.FENCED_MEMBER_EPOCH,
        _E.STALE_MEMBER_EPOCH,
        _E.FENCED_INSTANCE_ID,
        _E.REBALANCE_IN_PROGRESS,
    }
)


class Ended(Exception):
    """The producer can do nothing more in its epoch: fenced, or without an answer for too long."""


class Abortable(Exception):
    """The transaction cannot be committed."""


class Batch(NamedTuple):
    sequence: int
    values: list[bytes]
    data: bytes


class Owner(NamedTuple):
    """As whom a member of a group commits."""

    group: str
    member_id: str
    epoch: int


class TxnSession:
    """One producer from InitProducerId on; its owner makes the next one when it has `Ended`."""

    def __init__(
        self,
        wire: Wire,
        history: TxnHistory,
        records: History,
        trace: Trace,
        rng: random.Random,
        transactional_id: str,
        version: int,
        timeout_ms: int,
    ) -> None:
        self.wire = wire
        self.history = history
        self.records = records
        self.trace = trace
        self.rng = rng
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.sends = VERSIONS[version]
        self.producer_id, self.epoch = -1, -1
        self.incarnation = -1
        self.current: Transaction | None = None
        self._count = 0
        self._sequences: dict[Place, int] = {}
        self._added: dict[Place | str, None] = {}
        self._unsure: dict[Place | str, None] = {}
        """Where something was sent in this transaction that may still arrive."""
        self._used = False
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._sent: list[Sent] = []
        """What may come again after the transaction."""
        self.ghosts: Ghosts | None = None

    @property
    def name(self) -> str:
        return f"{self.transactional_id}#{self.incarnation}"

    # -- the course of a producer --------------------------------------------------------------

    async def init(self) -> None:
        """Take the transactional id over from whoever has it."""
        await self._init(-1, -1)
        self.incarnation = self.history.new_producer(self.transactional_id, self._now())
        self.trace.say(
            self.wire.name,
            f"{self.name} is producer {self.producer_id} epoch {self.epoch}, "
            f"version {self.version}",
        )

    async def _init(self, producer_id: int, epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer, _ = await self._coordinate(request, self.sends.init, lambda a: [a.error_code])
        self._take_epoch(answer.producer_id, answer.producer_epoch)

    def _take_epoch(self, producer_id: int, epoch: int) -> None:
        holds(
            producer_id != self.producer_id or epoch >= self.epoch,
            f"{self.name}: the epoch of {producer_id} went from {self.epoch} back to {epoch}",
        )
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()

    def begin(self) -> Transaction:
        self._count += 1
        self._added.clear()
        self._unsure.clear()
        self._sent.clear()
        self._used = False
        name = f"{self.name}.{self._count}"
        self.current = self.history.begin(name, self.transactional_id, self.incarnation)
        return self.current

    async def write(self, values: dict[Place, list[bytes]]) -> None:
        """Write to several partitions at once; Abortable when some of it cannot be written."""
        assert self.current is not None
        if self.version == VERSION_1:
            await self._add_partitions([place for place in values if place not in self._added])
        writes = [self._write(place, some) for place, some in values.items()]
        done = await asyncio.gather(*writes, return_exceptions=True)
        for error in sorted((d for d in done if d is not None), key=_gravity):
            raise error

    async def commit_offsets(self, owner: Owner, topic: str, offsets: dict[int, int]) -> None:
        """Put a group's offsets into the transaction."""
        assert self.current is not None
        if self.version == VERSION_1 and owner.group not in self._added:
            self._used = True
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=owner.group,
            )
            await self._coordinate(add, 3, lambda a: [a.error_code])
            self._added[owner.group] = None
        partitions = [
            TxnOffsetCommitRequestPartition(
                partition_index=p, committed_offset=offset, committed_metadata=""
            )
            for p, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=owner.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=owner.epoch,
            member_id=owner.member_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        self._used = True
        self._unsure[owner.group] = None
        await self._coordinate(
            request,
            self.sends.offsets,
            lambda a: [p.error_code for t in a.topics for p in t.partitions],
            (GROUP, owner.group),
        )
        del self._unsure[owner.group]

    async def end(self, commit: bool) -> None:
        """Commit or abort; returns when that is done for certain, else Ended or Abortable."""
        current = self.current
        assert current is not None
        self.history.ending(current, commit, self._now())
        if not self._used:
            self.history.ended(current, commit)
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        lost = [False]
        try:
            answer, _ = await self._coordinate(
                request, self.sends.end, lambda a: [a.error_code], lost=lost
            )
        except (Ended, Abortable) as e:
            refused = not lost[0] and (isinstance(e, Abortable) or e.args[1:] == ("fenced",))
            self.history.ended(current, False if refused or not commit else None)
            self.trace.say(self.wire.name, f"{current.name} commit={commit}: {e}")
            raise
        self.trace.event(f"{current.name} commit={commit} done")
        if self.ghosts is not None:
            self.ghosts.haunt(self._sent)
        self.history.ended(current, commit)
        if self.version == VERSION_2:
            self._take_epoch(answer.producer_id, answer.producer_epoch)
        elif self._unsure:
            # What is still on its way must not become part of the next transaction.
            await self._init(self.producer_id, self.epoch)

    # -- writing -------------------------------------------------------------------------------

    async def _add_partitions(self, places: list[Place]) -> None:
        if not places:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in topics.items()
            ],
        )
        self._used = True
        await self._coordinate(
            request,
            3,
            lambda a: [
                p.partition_error_code
                for t in a.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ],
        )
        self._added.update(dict.fromkeys(places))

    async def _write(self, place: Place, values: list[bytes]) -> None:
        """Some batches, on their way at the same time, sent until they are acknowledged."""
        current = self.current
        assert current is not None
        for value in values:
            self.history.sending(current, value, self._now())
        self._used = True
        self._unsure[place] = None
        left = self._batches(place, values)
        give_up = self._now() + PATIENCE_S
        while self._now() < give_up:
            for batch, offset in await self._send(place, left):
                left.remove(batch)
                if offset >= 0:
                    self.records.acknowledge(*place, offset, batch.values, current.name)
                for value in batch.values:
                    self.history.wrote(current, value, place)
            if not left:
                del self._unsure[place]
                return
            await pause(RETRY_S * self.rng.uniform(0.5, 1.5))
        raise Abortable(f"{place} takes nothing")

    def _batches(self, place: Place, values: list[bytes]) -> list[Batch]:
        size = self.rng.choice((1, 2, len(values)))
        now_ms = EPOCH_MS + int(self._now() * 1000)
        made = []
        for begin in range(0, len(values), size):
            some = values[begin : begin + size]
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + len(some)
            data = build_batch(
                [Record(i, now_ms, None, value) for i, value in enumerate(some)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            made.append(Batch(sequence, some, data))
        return made

    async def _send(self, place: Place, batches: list[Batch]) -> list[tuple[Batch, int]]:
        """Send batches in order; those that are acknowledged, with their offsets (-1: unknown)."""
        topic, partition = place
        try:
            leader = await self.wire.leader_of(topic, partition)
            if leader is None:
                return []
            connection = await self.wire.connection(leader.node_id)
        except PeerError:
            self.wire.forget(topic, partition)
            return []
        requests = [self._produce(place, batch) for batch in batches[:IN_FLIGHT_MAX]]
        version = self.sends.produce
        self._sent += [Sent(connection.address, request, version) for request in requests]
        calls = [connection.send(request, version, REQUEST_TIMEOUT_S) for request in requests]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        acknowledged: list[tuple[Batch, int]] = []
        for i, (batch, answer) in enumerate(zip(batches, answers, strict=False)):
            if isinstance(answer, PeerError):
                self.wire.forget(topic, partition)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                told = answer.responses[0].partition_responses[0]
                if self._took(place, batch, told, first=i == len(acknowledged)):
                    acknowledged.append((batch, int(told.base_offset)))
        return acknowledged

    def _produce(self, place: Place, batch: Batch) -> ProduceRequest:
        produced = PartitionProduceData(index=place[1], records=batch.data)
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=place[0], partition_data=[produced])],
        )

    def _took(self, place: Place, batch: Batch, told: Any, *, first: bool) -> bool:
        """Whether a batch is acknowledged; `first` says that all before it are."""
        code = ErrorCode(told.error_code)
        self.trace.event(f"{self.name} {place} {batch.sequence} {code.name} {told.base_offset}")
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return True
        self.wire.forget(*place)
        if first or code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._judge(code, f"{place} sequence {batch.sequence}: {told.error_message}")
        return False

    # -- coordinators --------------------------------------------------------------------------

    async def _coordinate(
        self,
        request: Message,
        version: int,
        codes: Callable[[Any], list[int]],
        who: tuple[int, str] | None = None,
        lost: list[bool] | None = None,
    ) -> tuple[Any, bool]:
        """Ask a coordinator until it answers; `lost[0]` says that an answer may have got lost."""
        who = who or (TRANSACTION, self.transactional_id)
        lost = lost if lost is not None else [False]
        give_up = self._now() + PATIENCE_S
        what = type(request).__name__.removesuffix("Request")
        while self._now() < give_up:
            answer = await self._ask(request, version, who, lost)
            if answer is not None:
                found = [ErrorCode(c) for c in codes(answer)]
                bad = next((c for c in found if c != ErrorCode.NONE), None)
                if bad is None:
                    return answer, lost[0]
                self.trace.event(f"{self.name} {what} {bad.name}")
                self._judge(bad, what)
                lost[0] = lost[0] or bad in LOST
                if bad is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinators.pop(who, None)
            await pause(RETRY_S * self.rng.uniform(0.5, 1.5))
        raise Ended(f"{what} gets no answer")

    async def _ask(
        self, request: Message, version: int, who: tuple[int, str], lost: list[bool]
    ) -> Any:
        try:
            address = self._coordinators.get(who)
            if address is None:
                find = FindCoordinatorRequest(key_type=who[0], coordinator_keys=[who[1]])
                [found] = (await self.wire.call_any(find)).coordinators
                if found.error_code != ErrorCode.NONE:
                    return None
                address = self._coordinators[who] = Address(found.host, found.port)
        except PeerError:
            return None
        if self.version == VERSION_2 and isinstance(
            request, EndTxnRequest | TxnOffsetCommitRequest
        ):
            self._sent.append(Sent(address, request, version))
        try:
            return await self.wire.call(address, request, version, REQUEST_TIMEOUT_S)
        except PeerError:
            lost[0] = True
            self._coordinators.pop(who, None)
            return None

    def _judge(self, code: ErrorCode, what: str) -> None:
        """Raise what an error means for the producer; nothing when it may try again."""
        if code in AGAIN:
            return
        if code in FENCING:
            self.history.fenced += 1
            raise Ended(f"{what}: {code.name}", "fenced")
        holds(code in ABORTING, f"{self.name} got {code.name}: {what}")
        raise Abortable(f"{what}: {code.name}")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _gravity(error: BaseException) -> int:
    """Broken promises first, then what ends the producer."""
    return 2 if isinstance(error, Abortable) else 1 if isinstance(error, Ended) else 0
