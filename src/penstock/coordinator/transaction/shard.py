"""One partition of `__transaction_state`: its transactional ids and their transactions.

Duty: find, make and drop the transactional ids of the partition and hand each event to the module
that knows what follows from it: `initialising`, `adding`, `ending`, `admin`.

Invariants: a transactional id has one producer id and one epoch, and a request with another is
refused; an event changes memory and log alike, so `replay` of the records this shard has emitted,
in order, builds an equal shard (under `transaction.version` 0 but for the producer ids before and
after, which the old format cannot hold); a `WriteMarkers` comes with or after the record that
decided its transaction. Every event may only concern transactional ids that hash to this partition:
the driver sees to that. No request waits inside the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.coordinator.effects import Caller, Effects, Reply, TimerKey
from penstock.coordinator.transaction.adding import add_or_verify
from penstock.coordinator.transaction.admin import describe_one, list_transactions
from penstock.coordinator.transaction.config import EndCounts, Environment, TransactionConfig
from penstock.coordinator.transaction.ending import (
    complete,
    end,
    fence,
    send_markers,
)
from penstock.coordinator.transaction.initialising import initialise, validate
from penstock.coordinator.transaction.metadata import TransactionMetadata, from_record
from penstock.coordinator.transaction.records import decode
from penstock.coordinator.transaction.refusals import added, refuse, transactions
from penstock.coordinator.transaction.states import IDLE, PREPARED, State
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
)
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.schema import Message

EXPIRED_RECORDS_MAX: Final = 10_000
"""How many transactional ids one round of expiry removes, so that its batch stays small."""


class TransactionShard:
    def __init__(
        self,
        config: TransactionConfig,
        coordinator_epoch: int,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        counts: EndCounts | None = None,
    ) -> None:
        self.environment = Environment(
            config, coordinator_epoch, take_producer_id, transaction_version, counts or EndCounts()
        )
        self.transactions: dict[str, TransactionMetadata] = {}

    # -- loading -------------------------------------------------------------------------------

    def replay(
        self, key: bytes, value: bytes | None, _timestamp: int, _producer_id: int | None
    ) -> None:
        """Apply a stored record; CorruptRecord if it cannot be read."""
        record = decode(key, value)
        if record is None:
            return
        transactional_id = record.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = from_record(transactional_id, record.value)

    def replay_marker(self, _producer_id: int, _commit: bool) -> None:
        """Nobody writes to this topic in a transaction."""
        raise InvariantBroken("the transaction log has a transaction marker in it")

    def loaded(self, now_ms: int) -> Effects:
        """The partition has been replayed: set the timers, and continue prepared transactions."""
        effects = Effects()
        for metadata in self.transactions.values():
            if metadata.state is State.ONGOING:
                effects.set_timer(metadata.timer, metadata.deadline_ms)
            elif metadata.state in PREPARED:
                send_markers(metadata, self.environment, effects, now_ms)
        return effects

    def unload(self) -> list[Reply]:
        return []

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        """One request. InitProducerId comes with a transactional id; AddPartitionsToTxn of brokers
        and DescribeTransactions with those that belong to this shard; AddOffsetsToTxn translated by
        `adding.offsets_as_partitions`.
        """
        return _HANDLERS[type(request)](self, request, caller, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        """The time of a transaction is up: it is aborted and its producer fenced. Where a producer
        id is needed and there is none, it is tried again later.
        """
        effects = Effects()
        metadata = self.transactions.get(key[0])
        if metadata is None or metadata.state is not State.ONGOING:
            return effects
        if now_ms < metadata.deadline_ms:
            effects.set_timer(metadata.timer, metadata.deadline_ms)
        elif fence(metadata, self.environment, effects, now_ms) is not None:
            config = self.environment.config
            pause_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
            effects.set_timer(metadata.timer, now_ms + pause_ms)
        else:
            self.environment.counts.timed_out += 1
        return effects

    def markers_written(
        self, transactional_id: str, producer_id: int, producer_epoch: int, now_ms: int
    ) -> Effects:
        """Every partition that a `WriteMarkers` named has its marker."""
        effects = Effects()
        metadata = self.transactions.get(transactional_id)
        if (
            metadata is not None
            and metadata.state in PREPARED
            and (metadata.producer_id, metadata.producer_epoch) == (producer_id, producer_epoch)
        ):
            complete(metadata, self.environment, effects, now_ms)
        return effects

    def expire(self, now_ms: int) -> Effects:
        """Forget transactional ids that nobody has used for long; call again while it does."""
        effects = Effects()
        before_ms = now_ms - self.environment.config.transactional_id_expiration_ms
        for metadata in list(self.transactions.values()):
            if len(effects.records) >= EXPIRED_RECORDS_MAX:
                break
            if metadata.state in IDLE and metadata.last_update_ms <= before_ms:
                metadata.die()
                effects.records.append(metadata.record(self.environment.transaction_version()))
                del self.transactions[metadata.transactional_id]
        return effects

    def invariants(self) -> None:
        """Raise InvariantBroken if a transaction contradicts itself; for tests."""
        for metadata in self.transactions.values():
            metadata.invariants()

    # -- requests ------------------------------------------------------------------------------

    def _initialise(self, request: InitProducerIdRequest, caller: Caller, now_ms: int) -> Effects:
        code = validate(request, self.environment)
        if code is not ErrorCode.NONE:
            return Effects.reply(caller, refuse(request, caller.version, code))
        assert request.transactional_id is not None
        metadata = self.transactions.get(request.transactional_id)
        if metadata is None:
            producer_id = self.environment.take_producer_id()
            if producer_id is None:
                none_yet = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                return Effects.reply(caller, refuse(request, caller.version, none_yet))
            metadata = TransactionMetadata(request.transactional_id, producer_id)
            self.transactions[request.transactional_id] = metadata
        return initialise(metadata, self.environment, request, caller, now_ms)

    def _add(self, request: AddPartitionsToTxnRequest, caller: Caller, now_ms: int) -> Effects:
        effects = Effects()
        results = [
            AddPartitionsToTxnResult(
                transactional_id=wanted.transactional_id,
                topic_results=add_or_verify(
                    self.transactions.get(wanted.transactional_id),
                    self.environment,
                    wanted,
                    caller.version,
                    effects,
                    now_ms,
                ),
            )
            for wanted in transactions(request, caller.version)
        ]
        effects.answer(caller, added(results, caller.version))
        return effects

    def _end(self, request: EndTxnRequest, caller: Caller, now_ms: int) -> Effects:
        metadata = self.transactions.get(request.transactional_id)
        if metadata is None:
            known = bool(request.transactional_id)
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING if known else ErrorCode.INVALID_REQUEST
            return Effects.reply(caller, refuse(request, caller.version, code))
        return end(metadata, self.environment, request, caller, now_ms)

    def _describe(self, request: DescribeTransactionsRequest, caller: Caller, _: int) -> Effects:
        found = [describe_one(id_, self.transactions.get(id_)) for id_ in request.transactional_ids]
        return Effects.reply(caller, DescribeTransactionsResponse(transaction_states=found))

    def _list(self, request: ListTransactionsRequest, caller: Caller, now_ms: int) -> Effects:
        known = self.transactions.values()
        return Effects.reply(caller, list_transactions(request, known, now_ms))


_HANDLERS: Final[
    Mapping[type[Message], Callable[[TransactionShard, Any, Caller, int], Effects]]
] = {
    InitProducerIdRequest: TransactionShard._initialise,
    AddPartitionsToTxnRequest: TransactionShard._add,
    EndTxnRequest: TransactionShard._end,
    DescribeTransactionsRequest: TransactionShard._describe,
    ListTransactionsRequest: TransactionShard._list,
}
