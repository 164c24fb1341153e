"""AddOffsetsToTxn (25), versions 0 to 4: a group's offsets become part of a transaction.

The group's partition of `__consumer_offsets` is added. The topic is created if a group's offsets
were never stored before.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.shards import given
from penstock.api.transactions import to_shard
from penstock.base.errors import ApiError
from penstock.base.ids import TopicPartition
from penstock.coordinator.transaction import offsets_as_partitions, partitions_as_offsets
from penstock.coordinator.transaction.refusals import BROKERS_FROM
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.serving.services import Services
from penstock.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse


@handler(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
async def add_offsets_to_txn(
    services: Services, request: Request[AddOffsetsToTxnRequest]
) -> AddOffsetsToTxnResponse:
    body = request.body
    try:
        services.transactions.require_writer(request.principal, body.transactional_id)
        index = await services.groups.offsets_partition(request.principal, body.group_id)
    except ApiError as e:
        return AddOffsetsToTxnResponse(error_code=e.code)
    answer = to_shard(
        services,
        request,
        body.transactional_id,
        offsets_as_partitions(body, TopicPartition(OFFSETS_TOPIC, index)),
        AddPartitionsToTxnResponse,
        version=min(request.version, BROKERS_FROM - 1),
    )
    return partitions_as_offsets(await given(answer))
