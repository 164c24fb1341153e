"""Answers that say nothing but an error, for every request that a transaction shard takes.

An error of a request is said in the place where its version looks for it: in the answer itself, for
every partition of a transaction, or for every transactional id. `PRODUCER_FENCED_FROM` is the table
of the versions that know PRODUCER_FENCED; older ones are told INVALID_PRODUCER_EPOCH instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from penstock.wire.messages import describe_transactions as describe
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.wire.schema import Message

BROKERS_FROM: Final = 4
"""From this version AddPartitionsToTxn comes from brokers and names several transactions."""
PRODUCER_FENCED_FROM: Final[Mapping[type[Message], int]] = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnRequest: 2,
    EndTxnRequest: 2,
}


def said_in(request: type[Message], version: int, code: ErrorCode) -> ErrorCode:
    """`code` as clients of `version` know it."""
    if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM.get(request, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def refuse(request: Message, version: int, code: ErrorCode) -> Message:
    """The answer to `request` that says `code`."""
    known = said_in(type(request), version, code)
    return REFUSALS[type(request)](request, version, known)


def _initialise(
    _request: InitProducerIdRequest, _version: int, code: ErrorCode
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def _add(
    request: AddPartitionsToTxnRequest, version: int, code: ErrorCode
) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResult(
            transactional_id=wanted.transactional_id, topic_results=answers(wanted.topics, code)
        )
        for wanted in transactions(request, version)
    ]
    return added(results, version)


def _describe(
    request: describe.DescribeTransactionsRequest, _version: int, code: ErrorCode
) -> describe.DescribeTransactionsResponse:
    return describe.DescribeTransactionsResponse(
        transaction_states=[
            describe.TransactionState(transactional_id=id_, error_code=code)
            for id_ in request.transactional_ids
        ]
    )


REFUSALS: Final[Mapping[type[Message], Callable[[Any, int, ErrorCode], Message]]] = {
    InitProducerIdRequest: _initialise,
    AddPartitionsToTxnRequest: _add,
    EndTxnRequest: lambda _, __, code: EndTxnResponse(error_code=code),
    describe.DescribeTransactionsRequest: _describe,
    ListTransactionsRequest: lambda _, __, code: ListTransactionsResponse(error_code=code),
}


# -- the two forms of AddPartitionsToTxn -------------------------------------------------------


def transactions(
    request: AddPartitionsToTxnRequest, version: int
) -> list[AddPartitionsToTxnTransaction]:
    """The transactions of a request; a client's (v0-3) in the form of later versions."""
    if version >= BROKERS_FROM:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            verify_only=False,
            topics=request.v3_and_below_topics,
        )
    ]


def added(results: list[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    """The answer in the form of its version."""
    if version >= BROKERS_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    (only,) = results
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=only.topic_results)


def answers(
    topics: Iterable[AddPartitionsToTxnTopic], code: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    """The same code for every partition."""
    return answers_by_partition(topics, lambda _: code)


def answers_by_partition(
    topics: Iterable[AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=code_of(TopicPartition(topic.name, index)),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
