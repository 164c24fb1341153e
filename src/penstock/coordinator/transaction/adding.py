"""AddPartitionsToTxn: partitions come into a transaction, or are looked for in it.

Clients of version 1 name one transaction (v0-3). Brokers name several (v4+): to have partitions
added for clients of version 2, whose Produce adds them, or only to verify that a client of version
1 has added them. The checks, in this order, decide the code:

                     adding                         verifying
    id not known     INVALID_PRODUCER_ID_MAPPING    INVALID_PRODUCER_ID_MAPPING
    Prepare...       CONCURRENT_TRANSACTIONS        (last but one)
    producer id      INVALID_PRODUCER_ID_MAPPING    INVALID_PRODUCER_ID_MAPPING
    epoch            PRODUCER_FENCED                PRODUCER_FENCED
    Prepare...       (above)                        CONCURRENT_TRANSACTIONS
    partition        added                          NONE if it is in, else TRANSACTION_ABORTABLE

When adding, a transaction that is being ended comes first: in version 2 its epoch has moved
already, so the client's next epoch and its old one must both be told to wait.
`refusals.PRODUCER_FENCED_FROM` says which versions know PRODUCER_FENCED. TRANSACTION_ABORTABLE is
for brokers, which translate it for their clients.

AddOffsetsToTxn is AddPartitionsToTxn of the group's partition of `__consumer_offsets`, which only
the caller can name: `offsets_as_partitions` and `partitions_as_offsets` translate.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.coordinator.effects import Effects
from penstock.coordinator.transaction.config import Environment
from penstock.coordinator.transaction.metadata import (
    LAST_EPOCH_OF_CLIENTS,
    VERSION_1,
    VERSION_2,
    TransactionMetadata,
)
from penstock.coordinator.transaction.refusals import (
    BROKERS_FROM,
    answers,
    answers_by_partition,
    said_in,
)
from penstock.coordinator.transaction.states import PREPARED, State
from penstock.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)


def add_or_verify(
    metadata: TransactionMetadata | None,
    environment: Environment,
    wanted: AddPartitionsToTxnTransaction,
    version: int,
    effects: Effects,
    now_ms: int,
) -> list[AddPartitionsToTxnTopicResult]:
    """What is answered for one transaction."""
    if not wanted.transactional_id:
        return answers(wanted.topics, ErrorCode.INVALID_REQUEST)
    if metadata is None:
        return answers(wanted.topics, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if wanted.verify_only:
        return _verify(metadata, wanted)
    code = _add(metadata, environment, wanted, version, effects, now_ms)
    return answers(wanted.topics, said_in(AddPartitionsToTxnRequest, version, code))


def _add(
    metadata: TransactionMetadata,
    environment: Environment,
    wanted: AddPartitionsToTxnTransaction,
    version: int,
    effects: Effects,
    now_ms: int,
) -> ErrorCode:
    if metadata.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    code = _producer(metadata, wanted)
    if code is not ErrorCode.NONE:
        return code
    partitions = list(_partitions(wanted.topics))
    is_open = metadata.state is State.ONGOING
    if is_open and all(partition in metadata.partitions for partition in partitions):
        return ErrorCode.NONE
    metadata.add(partitions, VERSION_2 if version >= BROKERS_FROM else VERSION_1, now_ms)
    effects.records.append(metadata.record(environment.transaction_version()))
    if not is_open:
        effects.set_timer(metadata.timer, metadata.deadline_ms)
    return ErrorCode.NONE


def _verify(
    metadata: TransactionMetadata, wanted: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    code = _producer(metadata, wanted)
    if code is ErrorCode.NONE and metadata.state in PREPARED:
        code = ErrorCode.CONCURRENT_TRANSACTIONS
    if code is not ErrorCode.NONE:
        return answers(wanted.topics, code)
    return answers_by_partition(
        wanted.topics,
        lambda partition: (
            ErrorCode.NONE if partition in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
        ),
    )


def _producer(metadata: TransactionMetadata, wanted: AddPartitionsToTxnTransaction) -> ErrorCode:
    if wanted.producer_id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # No producer is given the last epoch, so a request with it is invalid.
    if wanted.producer_epoch != metadata.producer_epoch or (
        wanted.producer_epoch > LAST_EPOCH_OF_CLIENTS
    ):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


# -- AddOffsetsToTxn ---------------------------------------------------------------------------


def offsets_as_partitions(
    request: AddOffsetsToTxnRequest, partition: TopicPartition
) -> AddPartitionsToTxnRequest:
    """The same in terms of `partition`, the group's partition of the offsets topic; to be handed to
    the shard as of version `min(version, BROKERS_FROM - 1)`.
    """
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=request.transactional_id,
        v3_and_below_producer_id=request.producer_id,
        v3_and_below_producer_epoch=request.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
        ],
    )


def partitions_as_offsets(response: AddPartitionsToTxnResponse) -> AddOffsetsToTxnResponse:
    """The answer to the translated request, translated back."""
    (topic,) = response.results_by_topic_v3_and_below
    (result,) = topic.results_by_partition
    return AddOffsetsToTxnResponse(error_code=result.partition_error_code)
