"""A transaction shard with a clock, timers, a log and a stock of producer ids around it.

Requests and answers go through their encoding in the version of the caller, so that nothing is
accepted here that could not travel. Records commit at once; markers are written when the test says
so. After every step the shard must keep its invariants and equal the one that is built from its
records.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.coordinator.effects import (
    Caller,
    CoordinatorRecord,
    Effects,
    SetTimer,
    TimerKey,
)
from penstock.coordinator.transaction import (
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
)
from penstock.coordinator.transaction.metadata import (
    LAST_EPOCH_OF_CLIENTS,
    TransactionMetadata,
)
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.schema import Message

FIRST_PRODUCER_ID = 1000
INIT_VERSION, ADD_VERSION, VERIFY_VERSION, END_VERSION = 5, 3, 5, 5
TIMEOUT_MS = 60_000


class Rig:
    def __init__(self, *, transaction_version: int = 2, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.transaction_version = transaction_version
        self.coordinator_epoch = 0
        self.producer_ids: Any = itertools.count(FIRST_PRODUCER_ID)
        self.out_of_ids = False
        self.now = 0
        self.timers: dict[TimerKey, int] = {}
        self.log: list[CoordinatorRecord] = []
        self.actions: list[WriteMarkers] = []
        self._tokens = itertools.count(1)
        self.shard = self._new()

    def _new(self) -> TransactionShard:
        return TransactionShard(
            self.config,
            self.coordinator_epoch,
            lambda: None if self.out_of_ids else next(self.producer_ids),
            lambda: self.transaction_version,
        )

    # -- events --------------------------------------------------------------------------------

    def send(self, request: Message, version: int) -> tuple[Any, Effects]:
        """The answer, which comes at once, and everything else."""
        token = next(self._tokens)
        caller = Caller(token, version, "client", "/127.0.0.1")
        decoded = type(request).decode(request.encode(version), version)
        effects = self.apply(self.shard.handle(decoded, caller, self.now))
        [reply] = effects.replies
        assert reply.token == token
        response = reply.response
        return type(response).decode(response.encode(version), version), effects

    def ask(self, request: Message, version: int) -> Any:
        return self.send(request, version)[0]

    def apply(self, effects: Effects) -> Effects:
        self.log += effects.records
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        for action in effects.actions:
            assert isinstance(action, WriteMarkers)
            self.actions.append(action)
        self.shard.invariants()
        assert comparable(self.replayed(), self.transaction_version) == comparable(
            self.shard, self.transaction_version
        )
        return effects

    def write_markers(self) -> Effects:
        """All markers that are asked for are written."""
        effects = Effects()
        while self.actions:
            action = self.actions.pop(0)
            effects += self.apply(
                self.shard.markers_written(
                    action.transactional_id, action.producer_id, action.producer_epoch, self.now
                )
            )
        return effects

    def next_timer(self) -> tuple[TimerKey, int] | None:
        return min(self.timers.items(), key=lambda timer: timer[1], default=None)

    def fire(self, key: TimerKey) -> Effects:
        del self.timers[key]
        return self.apply(self.shard.on_timer(key, self.now))

    def expire(self) -> Effects:
        return self.apply(self.shard.expire(self.now))

    # -- fail-over -----------------------------------------------------------------------------

    def replayed(self) -> TransactionShard:
        """A shard that is built from the records alone."""
        shard = self._new()
        for key, value in self.log:
            shard.replay(key, value, self.now, None)
        return shard

    def crash(self) -> Effects:
        """The next coordinator takes over; what was not done yet is forgotten."""
        self.coordinator_epoch += 1
        self.timers.clear()
        self.actions.clear()
        self.shard = self.replayed()
        return self.apply(self.shard.loaded(self.now))

    # -- requests ------------------------------------------------------------------------------

    def init(self, id_: str = "t", *, version: int = INIT_VERSION, **parts: Any) -> Any:
        """(code, producer id, epoch)"""
        parts.setdefault("transaction_timeout_ms", TIMEOUT_MS)
        request = InitProducerIdRequest(transactional_id=id_, **parts)
        answer = self.ask(request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def add(
        self, producer: tuple[int, int], *names: str, id_: str = "t", version: int = ADD_VERSION
    ) -> list[ErrorCode]:
        """Codes in the order of `names`, which are those of partitions (`a-0`); of version 4 and
        later in the manner of brokers.
        """
        return self._add(producer, names, id_, version, verify_only=False)

    def verify(self, producer: tuple[int, int], *names: str, id_: str = "t") -> list[ErrorCode]:
        return self._add(producer, names, id_, VERIFY_VERSION, verify_only=True)

    def _add(
        self,
        producer: tuple[int, int],
        names: tuple[str, ...],
        id_: str,
        version: int,
        *,
        verify_only: bool,
    ) -> list[ErrorCode]:
        topics = [
            AddPartitionsToTxnTopic(name=p.topic, partitions=[p.partition])
            for p in map(partition, names)
        ]
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=id_,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verify_only,
            topics=topics,
        )
        answer = self.ask(add_request(version, wanted), version)
        results = answer.results_by_topic_v3_and_below
        if version >= 4:
            [one] = answer.results_by_transaction
            assert one.transactional_id == id_
            results = one.topic_results
        return [
            ErrorCode(result.partition_error_code)
            for topic in results
            for result in topic.results_by_partition
        ]

    def end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool = True,
        id_: str = "t",
        version: int = END_VERSION,
    ) -> Any:
        """(code, producer id, epoch)"""
        request = EndTxnRequest(
            transactional_id=id_,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        answer = self.ask(request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    # -- a transaction in a given state --------------------------------------------------------

    def started(self, id_: str = "t") -> tuple[int, int]:
        """A new producer."""
        code, producer_id, epoch = self.init(id_)
        assert code is ErrorCode.NONE
        return producer_id, epoch

    def opened(self, *names: str, id_: str = "t") -> tuple[int, int]:
        """A new producer with an open transaction."""
        producer = self.started(id_)
        assert set(self.add(producer, *(names or ("a-0",)), id_=id_)) == {ErrorCode.NONE}
        return producer

    def set_epoch(self, epoch: int, id_: str = "t") -> tuple[int, int]:
        """As if the producer had begun often: its record is written anew with this epoch."""
        metadata = self.shard.transactions[id_]
        metadata.producer_epoch = epoch
        self.log.append(metadata.record(self.transaction_version))
        return metadata.producer_id, epoch

    def fenced_at_the_last_epoch(self) -> tuple[int, int]:
        """Before transactions version 2: a producer with the last epoch is fenced. Returns the
        epoch that nobody was given.
        """
        self.started()
        producer_id, epoch = self.set_epoch(LAST_EPOCH_OF_CLIENTS)
        self.add((producer_id, epoch), "a-0")
        assert self.init()[0] is ErrorCode.CONCURRENT_TRANSACTIONS
        self.write_markers()
        return producer_id, epoch + 1

    @property
    def state(self) -> str:
        return self.shard.transactions["t"].state.value


def partition(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))


def add_request(version: int, *wanted: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    if version >= 4:
        return AddPartitionsToTxnRequest(transactions=list(wanted))
    [only] = wanted
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=only.transactional_id,
        v3_and_below_producer_id=only.producer_id,
        v3_and_below_producer_epoch=only.producer_epoch,
        v3_and_below_topics=only.topics,
    )


def comparable(shard: TransactionShard, transaction_version: int) -> dict[str, TransactionMetadata]:
    """What a replay must bring back: everything that the format of the records can hold."""
    if transaction_version >= 1:
        return shard.transactions
    return {
        id_: replace(metadata, previous_producer_id=-1, next_producer_id=-1, client_version=0)
        for id_, metadata in shard.transactions.items()
    }
