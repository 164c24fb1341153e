"""InitProducerId: an id and an epoch for an idempotent or transactional producer."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(
    Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"
):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(
    Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"
):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
