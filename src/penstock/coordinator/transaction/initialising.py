"""InitProducerId with a transactional id: its owner from now on.

What is answered depends on the state of the transactional id:

    unknown               a new producer id, epoch 0
    Empty, Complete...    the next epoch; a new producer id when the epochs are used up
    Ongoing               the open transaction is aborted, its producer is fenced; the caller is
                          told to come again (CONCURRENT_TRANSACTIONS) and gets the next epoch then
    Prepare...            CONCURRENT_TRANSACTIONS

A caller that names the producer id and epoch it has (KIP-360) asks for the next epoch of the same
producer; it is refused with PRODUCER_FENCED unless it is the current owner or repeats the request
that made the current epoch. In two cases this is stricter or kinder than Kafka 4.3: there the
owner's open transaction is aborted by a caller that names an older epoch of it, and a repeated
request that was answered with the last epoch gets UNKNOWN_SERVER_ERROR.

`refusals.PRODUCER_FENCED_FROM` says which versions know the code PRODUCER_FENCED.
"""

from __future__ import annotations

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.transaction.config import Environment
from penstock.coordinator.transaction.ending import fence
from penstock.coordinator.transaction.metadata import (
    LAST_EPOCH_OF_CLIENTS,
    TransactionMetadata,
)
from penstock.coordinator.transaction.refusals import refuse
from penstock.coordinator.transaction.states import PREPARED, State
from penstock.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def validate(request: InitProducerIdRequest, environment: Environment) -> ErrorCode:
    """What can be said without knowing the transactional id."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= environment.config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialise(
    metadata: TransactionMetadata,
    environment: Environment,
    request: InitProducerIdRequest,
    caller: Caller,
    now_ms: int,
) -> Effects:
    """Give the caller an epoch of `metadata`, which may be brand new."""
    ending = metadata.state in PREPARED
    code = ErrorCode.CONCURRENT_TRANSACTIONS if ending else _owns(metadata, request)
    if code is not ErrorCode.NONE:
        return Effects.reply(caller, refuse(request, caller.version, code))
    effects = Effects()
    if metadata.state is State.ONGOING:
        code = fence(metadata, environment, effects, now_ms) or ErrorCode.CONCURRENT_TRANSACTIONS
        effects.answer(caller, refuse(request, caller.version, code))
        return effects
    code = _next_epoch(metadata, environment, request, now_ms)
    if code is not ErrorCode.NONE:
        return Effects.reply(caller, refuse(request, caller.version, code))
    effects.records.append(metadata.record(environment.transaction_version()))
    effects.answer(
        caller,
        InitProducerIdResponse(
            producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch
        ),
    )
    return effects


def _owns(metadata: TransactionMetadata, request: InitProducerIdRequest) -> ErrorCode:
    """Whether the caller, if it names a producer, owns the transactional id."""
    producer_id, epoch = request.producer_id, request.producer_epoch
    if producer_id == NO_PRODUCER_ID or metadata.producer_epoch == NO_PRODUCER_EPOCH:
        return ErrorCode.NONE
    current = producer_id == metadata.producer_id
    repeated = epoch == metadata.last_producer_epoch and (
        current or (producer_id == metadata.previous_producer_id and epoch >= LAST_EPOCH_OF_CLIENTS)
    )
    if current and epoch == metadata.producer_epoch:
        return ErrorCode.NONE
    if repeated and metadata.state is not State.ONGOING:
        return ErrorCode.NONE
    return ErrorCode.PRODUCER_FENCED


def _next_epoch(
    metadata: TransactionMetadata,
    environment: Environment,
    request: InitProducerIdRequest,
    now_ms: int,
) -> ErrorCode:
    producer_id, epoch, last = metadata.producer_id, metadata.producer_epoch, NO_PRODUCER_EPOCH
    named = request.producer_epoch != NO_PRODUCER_EPOCH and epoch != NO_PRODUCER_EPOCH
    if named and request.producer_epoch != epoch:
        last = metadata.last_producer_epoch  # asked again: the same answer
    else:
        if named:
            last = epoch
        epoch += 1
        if metadata.epochs_exhausted:
            taken = environment.take_producer_id()
            if taken is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            producer_id, epoch = taken, 0
    metadata.initialise(producer_id, epoch, last, request.transaction_timeout_ms, now_ms)
    return ErrorCode.NONE
