"""DescribeTransactions (65), version 0: state, producer and partitions of transactions."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.api.shards import submit, together
from penstock.serving.services import Services
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


@handler(DescribeTransactionsRequest, DescribeTransactionsResponse)
async def describe_transactions(
    services: Services, request: Request[DescribeTransactionsRequest]
) -> DescribeTransactionsResponse:
    answers = await together(
        submit(
            services.transactions,
            request,
            id_,
            DescribeTransactionsRequest(transactional_ids=[id_]),
            DescribeTransactionsResponse,
        )
        for id_ in request.body.transactional_ids
    )
    return DescribeTransactionsResponse(
        transaction_states=[state for answer in answers for state in answer.transaction_states]
    )
