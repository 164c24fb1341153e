"""EndTxn (26), versions 0 to 5: commit or abort a transaction."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.registry import Request, handler
from penstock.api.transactions import to_shard
from penstock.serving.services import Services
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


@handler(EndTxnRequest, EndTxnResponse)
def end_txn(
    services: Services, request: Request[EndTxnRequest]
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    body = request.body
    return to_shard(services, request, body.transactional_id, body, EndTxnResponse)
