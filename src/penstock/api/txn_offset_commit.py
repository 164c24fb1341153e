"""TxnOffsetCommit (28), versions 0 to 5: store how far a group has read as part of a transaction.

Before version 3 the request does not name the member, and none is checked. Version 5 adds the
group's partition of the offsets topic to the transaction; older clients send AddOffsetsToTxn first.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.shards import client_host
from penstock.serving.services import Services
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


@handler(TxnOffsetCommitRequest, TxnOffsetCommitResponse)
async def txn_offset_commit(
    services: Services, request: Request[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse:
    return await services.groups.commit_in_transaction(
        request.principal,
        request.body,
        request.version,
        request.client_id or "",
        client_host(request),
    )
