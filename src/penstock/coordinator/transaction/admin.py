"""DescribeTransactions and ListTransactions: what an operator is shown."""

from __future__ import annotations

from collections.abc import Collection

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.consumer.regex import TopicPattern
from penstock.coordinator.transaction.metadata import TransactionMetadata
from penstock.coordinator.transaction.states import BY_NAME
from penstock.wire.messages import describe_transactions as describe
from penstock.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def describe_one(
    transactional_id: str, metadata: TransactionMetadata | None
) -> describe.TransactionState:
    if not transactional_id:
        return describe.TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    if metadata is None:
        return describe.TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return describe.TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.value,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            describe.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in metadata.by_topic().items()
        ],
    )


def list_transactions(
    request: ListTransactionsRequest, known: Collection[TransactionMetadata], now_ms: int
) -> ListTransactionsResponse:
    """Those that pass every filter. What has not begun counts as open for ever, as in Kafka."""
    try:
        pattern = _pattern(request.transactional_id_pattern, known)
    except ApiError as e:
        return ListTransactionsResponse(error_code=e.code)
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    found = [
        TransactionState(
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            transaction_state=metadata.state.value,
        )
        for metadata in known
        if (not request.state_filters or metadata.state in states)
        and (not request.producer_id_filters or metadata.producer_id in request.producer_id_filters)
        and (request.duration_filter < 0 or now_ms - metadata.start_ms > request.duration_filter)
        and (pattern is None or pattern.matches(metadata.transactional_id))
    ]
    unknown = [name for name in request.state_filters if name not in BY_NAME]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _pattern(text: str | None, known: Collection[TransactionMetadata]) -> TopicPattern | None:
    """The filter by transactional id, which may consist of any characters."""
    if not text:
        return None
    return TopicPattern(text, frozenset().union(*(one.transactional_id for one in known)))
