"""Requests of this node to itself, as a client of its own would send them.

The node acts for the cluster, so nobody is asked for rights; what goes to other nodes needs those
of the node's user there (`super.users`). A request goes to the coordinator or the leader on this
node, without a codec, and gets the response that a client would get. Owned by the event loop's
thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.auth.principal import Principal
from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinating.group_coordinator import GroupCoordinator
from penstock.coordinating.producer_ids import ProducerIdManager
from penstock.coordinating.transaction_coordinator import TransactionCoordinator
from penstock.coordinating.transaction_verification import SupportedOperation
from penstock.coordinating.transactional_commits import TransactionalCommits
from penstock.serving.append import AppendRequest, AppendResult
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.wire.schema import Message

PRODUCER_IDS_WAIT_S: Final = 0.25
"""How long the node's first block of producer ids is waited for."""
ADDS_FROM: Final = 12
"""The first version of Produce that puts its partitions into the transaction (KIP-890)."""
CLIENT_ID: Final = "penstock"
_NODE: Final = Principal("Node", "")


class _Source:
    """Where the node's own batches come from: each is waited for by who has sent it."""

    def hold(self, size: int) -> None:
        pass

    def release(self) -> None:
        pass


class OwnRequests:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIdManager,
        groups: GroupCoordinator,
        commits: TransactionalCommits,
        append: Callable[[AppendRequest, Callable[[AppendResult], None]], None],
    ) -> None:
        """`append` asks for no rights."""
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._groups = groups
        self._commits = commits
        self._append = append

    async def ask(self, request: Message, version: int) -> Any:
        answer: Message | Awaitable[Message]
        if isinstance(request, ProduceRequest):
            answer = self._produce(request, version)
        elif isinstance(request, TxnOffsetCommitRequest):
            answer = self._commits.commit(request, version, CLIENT_ID, "")
        elif isinstance(request, OffsetFetchRequest):
            [group] = request.groups
            answer = self._groups.submit(group.group_id, request, version, CLIENT_ID, "")
        else:
            if isinstance(request, InitProducerIdRequest):
                # The coordinator cannot wait for one, and would refuse the request.
                await self._producer_ids.prepare(PRODUCER_IDS_WAIT_S)
            key = _transactional_id(request)
            answer = self._transactions.submit_patiently(key, request, version, CLIENT_ID, "")
        return await answer if inspect.isawaitable(answer) else answer

    async def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse:
        over: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        adds = version >= ADDS_FROM
        append = AppendRequest(
            _NODE,
            _Source(),
            request.acks,
            request.timeout_ms,
            [
                (
                    topic.name,
                    [(p.index, memoryview(p.records or b"")) for p in topic.partition_data],
                )
                for topic in request.topic_data
            ],
            None,
            request.transactional_id,
            SupportedOperation.ADD_PARTITION if adds else SupportedOperation.GENERIC_ERROR,
        )
        self._append(append, lambda result: None if over.done() else over.set_result(result))
        result = await over
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=str(topic),
                    partition_responses=[
                        PartitionProduceResponse(
                            index=answer.partition,
                            error_code=answer.error_code,
                            base_offset=answer.base_offset,
                            error_message=answer.error_message,
                        )
                        for answer in answers
                    ],
                )
                for topic, answers in result.topics
            ]
        )


def _transactional_id(request: Message) -> str:
    if isinstance(request, InitProducerIdRequest):
        return request.transactional_id or ""
    if isinstance(request, EndTxnRequest):
        return request.transactional_id
    if isinstance(request, AddPartitionsToTxnRequest):
        return request.v3_and_below_transactional_id
    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is not for oneself")
