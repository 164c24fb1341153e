"""ListTransactions: the transactions that a coordinator knows."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"
):
    state_filters: list[str] = array(string, "0+")
    producer_id_filters: list[int] = array(int64, "0+")
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    transaction_state: str = string("0+")


class ListTransactionsResponse(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    unknown_state_filters: list[str] = array(string, "0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")
