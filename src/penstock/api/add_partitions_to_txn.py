"""AddPartitionsToTxn (24), versions 0 to 5: partitions become part of a transaction.

Versions 0 to 3 come from clients, for one transaction; later ones from brokers, for several, each
of which goes to its own shard. A partition that does not exist fails its whole transaction: the
others are answered with OPERATION_NOT_ATTEMPTED. Clients cannot add the cluster's own topics, nor
those that they may not write to.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.api.registry import Request, handler
from penstock.api.shards import given, submit, together
from penstock.api.transactions import to_shard
from penstock.auth.principal import Principal
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicPartition
from penstock.base.steps import Steps
from penstock.coordinator.transaction.refusals import (
    BROKERS_FROM,
    added,
    answers,
    answers_by_partition,
    transactions,
)
from penstock.metadata.names import INTERNAL_TOPICS, OFFSETS_TOPIC
from penstock.net.turn import in_turns
from penstock.serving.services import Services
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)

PARTITIONS_PER_STEP = 100


@handler(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
async def add_partitions_to_txn(
    services: Services, request: Request[AddPartitionsToTxnRequest]
) -> AddPartitionsToTxnResponse:
    version = request.version
    if version < BROKERS_FROM:
        (wanted,) = transactions(request.body, version)
        try:
            services.transactions.require_writer(request.principal, wanted.transactional_id)
        except ApiError as e:
            return added([_refused(wanted, e.code)], version)
        refused = await in_turns(_refusals(services, request, wanted))
        return await given(_add(services, request, wanted, refused, request.body))
    try:
        services.transactions.require_node(request.principal)
    except ApiError as e:
        return AddPartitionsToTxnResponse(error_code=e.code)
    refusals = [
        await in_turns(_refusals(services, request, wanted)) for wanted in request.body.transactions
    ]
    found = await together(
        _add(services, request, wanted, refused, AddPartitionsToTxnRequest(transactions=[wanted]))
        for wanted, refused in zip(request.body.transactions, refusals, strict=True)
    )
    results = [result for answer in found for result in answer.results_by_transaction]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _refusals(
    services: Services,
    request: Request[AddPartitionsToTxnRequest],
    wanted: AddPartitionsToTxnTransaction,
) -> Steps[dict[TopicPartition, ErrorCode]]:
    """The partitions that cannot be added."""
    from_client = request.version < BROKERS_FROM
    refused: dict[TopicPartition, ErrorCode] = {}
    checked = 0
    for topic in wanted.topics:
        for index in topic.partitions:
            checked += 1
            if checked % PARTITIONS_PER_STEP == 0:
                yield
            tp = TopicPartition(topic.name, index)
            code = _refusal(services, request.principal, tp, from_client)
            if code is not None:
                refused[tp] = code
    return refused


def _add(
    services: Services,
    request: Request[AddPartitionsToTxnRequest],
    wanted: AddPartitionsToTxnTransaction,
    refused: dict[TopicPartition, ErrorCode],
    body: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """`body` asks for `wanted` alone, in the form of its version."""
    from_client = request.version < BROKERS_FROM
    id_ = wanted.transactional_id
    if not refused and from_client:
        return to_shard(services, request, id_, body, AddPartitionsToTxnResponse)
    if not refused:
        # None may delay the others, whose producers wait for the same answer.
        return submit(services.transactions, request, id_, body, AddPartitionsToTxnResponse)
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    results = answers_by_partition(wanted.topics, lambda tp: refused.get(tp, not_attempted))
    result = AddPartitionsToTxnResult(transactional_id=id_, topic_results=results)
    return added([result], request.version)


def _refusal(
    services: Services, principal: Principal, tp: TopicPartition, from_client: bool
) -> ErrorCode | None:
    # Brokers may add the offsets of groups; the transaction log itself cannot be added.
    closed = tp.topic in INTERNAL_TOPICS and (from_client or tp.topic != OFFSETS_TOPIC)
    if closed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = services.topics
    try:
        check = topics.check_writable if from_client else topics.check_partition
        check(principal, tp.topic, tp.partition)
    except ApiError as e:
        return e.code
    return None


def _refused(wanted: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id, topic_results=answers(wanted.topics, code)
    )
