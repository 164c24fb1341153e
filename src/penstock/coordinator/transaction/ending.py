"""The end of a transaction: EndTxn, fencing and the markers that follow.

A transaction ends in two steps. `Prepare...` decides it, and is written before anyone else learns
of it; then every partition of the transaction gets a marker (the action `WriteMarkers`), and when
all have it `Complete...` is written. A transaction without partitions takes both steps at once.

An EndTxn of version 5 and later is one of transactions version 2: it bumps the epoch, and the new
epoch (or a new producer id with epoch 0 when the epochs are used up) is in the answer. So the epoch
tells a repeated EndTxn from the next one:

    epoch is the current one          the end of what is there now
    epoch is the one before           a repetition, if the transaction is over: the same answer
    producer id is the previous one,  the same, where the end used up the epochs
      epoch the last of clients

and in both cases only what an end of version 2 has left behind can have been repeated (Kafka 4.3
does not look, and gives the epoch of an owner that speaks version 1 to the owner before it).

`_VERSION_2` and `_VERSION_1` are the tables that decide. While a transaction is being ended every
EndTxn is told to come again (CONCURRENT_TRANSACTIONS), as Kafka does with its pending state; in
version 1 only after the producer has been checked. `refusals.PRODUCER_FENCED_FROM` says which
versions know the code PRODUCER_FENCED.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_PRODUCER_ID, TopicPartition
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.transaction.config import Environment
from penstock.coordinator.transaction.metadata import (
    LAST_EPOCH_OF_CLIENTS,
    VERSION_1,
    VERSION_2,
    TransactionMetadata,
)
from penstock.coordinator.transaction.refusals import refuse
from penstock.coordinator.transaction.states import IDLE, PREPARED, State
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSION_2_FROM: Final = 5
"""From this version EndTxn comes from a client of transactions version 2."""


class WriteMarkers(NamedTuple):
    """Write the end of a transaction into these partitions, and say `markers_written` when all have
    it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


class _Then(Enum):
    END = "end it"
    ANSWER = "answer as if it had just been ended"


_INVALID: Final = ErrorCode.INVALID_TXN_STATE
COMMIT, ABORT = True, False
FIRST, REPEATED = False, True

_VERSION_2: Final[dict[tuple[State, bool, bool], _Then | ErrorCode]] = {
    (State.ONGOING, COMMIT, FIRST): _Then.END,
    (State.ONGOING, ABORT, FIRST): _Then.END,
    (State.EMPTY, COMMIT, FIRST): _INVALID,
    (State.EMPTY, ABORT, FIRST): _Then.END,
    (State.COMPLETE_COMMIT, COMMIT, FIRST): _INVALID,
    (State.COMPLETE_COMMIT, ABORT, FIRST): _Then.END,
    (State.COMPLETE_COMMIT, COMMIT, REPEATED): _Then.ANSWER,
    (State.COMPLETE_COMMIT, ABORT, REPEATED): _INVALID,
    (State.COMPLETE_ABORT, COMMIT, FIRST): _INVALID,
    (State.COMPLETE_ABORT, ABORT, FIRST): _Then.END,
    (State.COMPLETE_ABORT, COMMIT, REPEATED): _INVALID,
    (State.COMPLETE_ABORT, ABORT, REPEATED): _Then.ANSWER,
}
"""By state, decision and whether it is a repetition. A client may have produced to a partition that
was never added, and aborts to be sure: so an abort ends also what has not begun.
"""

_VERSION_1: Final[dict[tuple[State, bool], _Then | ErrorCode]] = {
    (State.ONGOING, COMMIT): _Then.END,
    (State.ONGOING, ABORT): _Then.END,
    (State.EMPTY, COMMIT): _INVALID,
    (State.EMPTY, ABORT): _INVALID,
    (State.COMPLETE_COMMIT, COMMIT): _Then.ANSWER,
    (State.COMPLETE_COMMIT, ABORT): _INVALID,
    (State.COMPLETE_ABORT, COMMIT): _INVALID,
    (State.COMPLETE_ABORT, ABORT): _Then.ANSWER,
}
"""By state and decision: the epoch stays, so an EndTxn after the end can only be a repetition."""


def end(
    metadata: TransactionMetadata,
    environment: Environment,
    request: EndTxnRequest,
    caller: Caller,
    now_ms: int,
) -> Effects:
    """EndTxn of a client."""
    is_version_2 = caller.version >= VERSION_2_FROM
    decide = _decide_version_2 if is_version_2 else _decide_version_1
    decided = decide(metadata, request)
    effects = Effects()
    if decided is _Then.END:
        client_version = VERSION_2 if is_version_2 else VERSION_1
        decided = _end(metadata, environment, effects, request, client_version, now_ms)
    if isinstance(decided, ErrorCode):
        return Effects.reply(caller, refuse(request, caller.version, decided))
    producer_id, producer_epoch = metadata.after_end
    effects.answer(caller, EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch))
    return effects


def _decide_version_2(metadata: TransactionMetadata, request: EndTxnRequest) -> _Then | ErrorCode:
    if metadata.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    producer_id, epoch = request.producer_id, request.producer_epoch
    used_up = (
        producer_id == metadata.previous_producer_id
        and epoch == LAST_EPOCH_OF_CLIENTS
        and metadata.producer_epoch == 0
    )
    if producer_id != metadata.producer_id and not used_up:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # Only an end of version 2 has bumped the epoch; otherwise the current one belongs to another
    # owner.
    bumped = metadata.client_version >= VERSION_2
    repeated = bumped and (used_up or epoch + 1 == metadata.producer_epoch)
    known = epoch == metadata.producer_epoch and epoch <= LAST_EPOCH_OF_CLIENTS
    then = _VERSION_2.get((metadata.state, request.committed, repeated))
    if then is None or not (known or repeated):
        return ErrorCode.PRODUCER_FENCED
    return then


def _decide_version_1(metadata: TransactionMetadata, request: EndTxnRequest) -> _Then | ErrorCode:
    if request.producer_id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != metadata.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _VERSION_1[metadata.state, request.committed]


def fence(
    metadata: TransactionMetadata, environment: Environment, effects: Effects, now_ms: int
) -> ErrorCode | None:
    """Abort the open transaction without its producer, which can do nothing more in it. Changes
    nothing when it says an error.
    """
    is_version_2 = environment.transaction_version() >= VERSION_2
    client_version = VERSION_2 if is_version_2 else VERSION_1
    next_producer_id = _next_producer_id(metadata, environment, client_version)
    if next_producer_id is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    metadata.fence(bump=not is_version_2)
    _prepare(metadata, environment, effects, ABORT, client_version, next_producer_id, now_ms)
    return None


def _end(
    metadata: TransactionMetadata,
    environment: Environment,
    effects: Effects,
    request: EndTxnRequest,
    client_version: int,
    now_ms: int,
) -> _Then | ErrorCode:
    next_producer_id = _next_producer_id(metadata, environment, client_version)
    if next_producer_id is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    commit = request.committed
    _prepare(metadata, environment, effects, commit, client_version, next_producer_id, now_ms)
    return _Then.ANSWER


def _next_producer_id(
    metadata: TransactionMetadata, environment: Environment, client_version: int
) -> int | None:
    """The producer id for the transactions after this one if the epochs are used up; None when one
    is needed and there is none.
    """
    if client_version >= VERSION_2 and metadata.epochs_exhausted:
        return environment.take_producer_id()
    return NO_PRODUCER_ID


def _prepare(
    metadata: TransactionMetadata,
    environment: Environment,
    effects: Effects,
    commit: bool,
    client_version: int,
    next_producer_id: int,
    now_ms: int,
) -> None:
    """Decide the transaction and let its partitions know."""
    if metadata.state not in IDLE:
        effects.cancel_timer(metadata.timer)
    metadata.prepare(
        commit=commit,
        client_version=client_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )
    effects.records.append(metadata.record(environment.transaction_version()))
    send_markers(metadata, environment, effects, now_ms)


def send_markers(
    metadata: TransactionMetadata, environment: Environment, effects: Effects, now_ms: int
) -> None:
    """Continue a prepared transaction: have its markers written, or complete it if it has no
    partitions.
    """
    if not metadata.partitions:
        complete(metadata, environment, effects, now_ms)
        return
    effects.actions.append(
        WriteMarkers(
            metadata.transactional_id,
            metadata.producer_id,
            metadata.producer_epoch,
            environment.coordinator_epoch,
            metadata.state is State.PREPARE_COMMIT,
            tuple(metadata.partitions),
            metadata.client_version,
        )
    )


def complete(
    metadata: TransactionMetadata, environment: Environment, effects: Effects, now_ms: int
) -> None:
    """All partitions have their markers."""
    metadata.complete(now_ms)
    if metadata.state is State.COMPLETE_COMMIT:
        environment.counts.committed += 1
    else:
        environment.counts.aborted += 1
    effects.records.append(metadata.record(environment.transaction_version()))
