"""Transactions: a request goes to the shard that keeps its transactional id.

With rights active a request needs one to the transactional id (`_NEEDS`; a request without a row is
none of a client's); what other nodes ask for needs one to speak for a node. Owned by the event
loop's thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from penstock.auth.principal import Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinating.producer_ids import ProducerIdManager
from penstock.coordinating.transaction_coordinator import TransactionCoordinator
from penstock.coordinating.transaction_markers_here import MarkersHere
from penstock.coordinator.transaction.refusals import BROKERS_FROM, refuse
from penstock.net.turn import Turn
from penstock.serving.rights import DENIED, Rights
from penstock.serving.shards import ShardService
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsResponse
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.wire.schema import Message

IDS_PER_CHECK: Final = 100
"""Transactional ids whose rights are looked up before the clock is checked."""
_NEEDS: Final[Mapping[type[Message], Operation]] = {
    InitProducerIdRequest: Operation.WRITE,
    AddPartitionsToTxnRequest: Operation.WRITE,
    EndTxnRequest: Operation.WRITE,
    DescribeTransactionsRequest: Operation.DESCRIBE,
}
"""What has to be allowed on the transactional id."""


class TransactionService(ShardService):
    def __init__(
        self,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIdManager,
        markers: MarkersHere,
        rights: Rights,
    ) -> None:
        super().__init__(transactions)
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._markers = markers
        self._rights = rights

    # -- requests to shards --------------------------------------------------------------------

    def submit(
        self,
        principal: Principal,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        code = self._refusal(principal, key, request, version)
        if code is not None:
            return refuse(request, version, code)
        answer = self._coordinator.submit(key, request, version, client_id, client_host)
        if self._rights.active and isinstance(request, DescribeTransactionsRequest):
            return self._described(principal, answer)
        return answer

    def submit_patiently(
        self,
        principal: Principal,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        """Like `submit`; a request that arrives while the last transaction is being ended waits for
        that a moment.
        """
        code = self._refusal(principal, key, request, version)
        if code is not None:
            return refuse(request, version, code)
        return self._transactions.submit_patiently(key, request, version, client_id, client_host)

    def everywhere(
        self, principal: Principal, request: Message, version: int, client_id: str, client_host: str
    ) -> list[Message | Awaitable[Message]]:
        answers = super().everywhere(principal, request, version, client_id, client_host)
        if self._rights.sees_all(principal):
            return answers
        return [self._listed(principal, answer) for answer in answers]

    async def coordinator_of(self, principal: Principal, key: str) -> int:
        self._rights.require_transactional_id(principal, Operation.DESCRIBE, key)
        return await self._coordinator.coordinator_of(key)

    def _refusal(
        self, principal: Principal, key: str, request: Message, version: int
    ) -> ErrorCode | None:
        if not self._rights.active:
            return None
        needs = _NEEDS[type(request)]
        try:
            if isinstance(request, AddPartitionsToTxnRequest) and version >= BROKERS_FROM:
                self.require_node(principal)
            elif isinstance(request, InitProducerIdRequest):
                self.check_producer(principal, request)
            else:
                self._rights.require_transactional_id(principal, needs, key)
        except ApiError as e:
            return e.code
        return None

    async def _described(
        self, principal: Principal, answer: Message | Awaitable[Message]
    ) -> Message:
        """Without the topics that they may not know of."""
        found: Any = await answer if inspect.isawaitable(answer) else answer
        for state in found.transaction_states:
            state.topics = [
                topic
                for topic in state.topics
                if self._rights.topic(principal, Operation.DESCRIBE, topic.topic)
            ]
        return found  # type: ignore[no-any-return]

    async def _listed(
        self, principal: Principal, answer: Message | Awaitable[Message]
    ) -> ListTransactionsResponse:
        """Without the transactional ids that they may not know of."""
        found: Any = await answer if inspect.isawaitable(answer) else answer
        kind, shown, turn = ResourceType.TRANSACTIONAL_ID, [], Turn()
        for number, state in enumerate(found.transaction_states, 1):
            if self._rights.shows(principal, Operation.DESCRIBE, kind, state.transactional_id):
                shown.append(state)
            if number % IDS_PER_CHECK == 0 and turn.is_over:
                await turn.next()
        found.transaction_states = shown
        return found  # type: ignore[no-any-return]

    # -- rights --------------------------------------------------------------------------------

    def check_producer(self, principal: Principal, request: InitProducerIdRequest) -> None:
        """`ApiError` unless they may have a producer id: of a transactional id, or to write."""
        id_ = request.transactional_id
        if id_ is not None:
            self._rights.require_transactional_id(principal, Operation.WRITE, id_)
            if request.enable2_pc:
                self._rights.require_transactional_id(principal, Operation.TWO_PHASE_COMMIT, id_)
        elif not self._rights.cluster_shows(
            principal, Operation.IDEMPOTENT_WRITE
        ) and not self._rights.any_topic(principal, Operation.WRITE):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)

    def require_writer(self, principal: Principal, transactional_id: str) -> None:
        """`ApiError` unless they may write in transactions of the id."""
        self._rights.require_transactional_id(principal, Operation.WRITE, transactional_id)

    def require_node(self, principal: Principal) -> None:
        """`ApiError` unless it may speak for a node."""
        self._rights.require_cluster(principal, Operation.CLUSTER_ACTION)

    # -- for producers and nodes ---------------------------------------------------------------

    async def new_producer_id(self, principal: Principal) -> int:
        """An id that no producer has had before; `check_producer` has let them have one."""
        return await self._producer_ids.next()

    async def prepare_producer_ids(self, principal: Principal, timeout_s: float) -> None:
        """Fetch producer ids if there are none; wait for them at most the given time."""
        await self._producer_ids.prepare(timeout_s)

    async def write_markers(
        self, principal: Principal, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """End transactions in partitions that this node leads."""
        may = self._rights.cluster_shows(principal, Operation.ALTER) or self._rights.cluster(
            principal, Operation.CLUSTER_ACTION
        )
        if not may:
            return _refused_markers(request)
        return await self._markers.write(request)


def _refused_markers(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=denied
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
