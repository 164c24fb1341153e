"""ListTransactions (66), versions 0 to 2: the transactions that this node coordinates.

While a shard is being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS, since its transactions are
not known yet.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.shards import submit_everywhere, together
from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction import admin
from penstock.serving.services import Services
from penstock.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


@handler(ListTransactionsRequest, ListTransactionsResponse)
async def list_transactions(
    services: Services, request: Request[ListTransactionsRequest]
) -> ListTransactionsResponse:
    # Also a node without shards validates the request.
    listed = admin.list_transactions(request.body, (), 0)
    answers = await together(
        submit_everywhere(services.transactions, request, ListTransactionsResponse)
    )
    for answer in (listed, *answers):
        # A shard that has moved to another node is asked there.
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
            return ListTransactionsResponse(error_code=answer.error_code)
    listed.transaction_states = [s for answer in answers for s in answer.transaction_states]
    return listed
