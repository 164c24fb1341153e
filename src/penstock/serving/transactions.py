"""Transactions: a request goes to the shard that keeps its transactional id.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.coordinating.producer_ids import ProducerIdManager
from penstock.coordinating.transaction_coordinator import TransactionCoordinator
from penstock.coordinating.transaction_markers_here import MarkersHere
from penstock.serving.shards import ShardService
from penstock.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.wire.schema import Message


class TransactionService(ShardService):
    def __init__(
        self,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIdManager,
        markers: MarkersHere,
    ) -> None:
        super().__init__(transactions)
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._markers = markers

    def submit_patiently(
        self,
        principal: str,
        key: str,
        request: Message,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Message | Awaitable[Message]:
        """Like `submit`; a request that arrives while the last transaction is being ended waits for
        that a moment.
        """
        return self._transactions.submit_patiently(key, request, version, client_id, client_host)

    async def new_producer_id(self, principal: str) -> int:
        """An id that no producer has had before."""
        return await self._producer_ids.next()

    async def prepare_producer_ids(self, principal: str, timeout_s: float) -> None:
        """Fetch producer ids if there are none; wait for them at most the given time."""
        await self._producer_ids.prepare(timeout_s)

    def write_markers(
        self, principal: str, request: WriteTxnMarkersRequest
    ) -> Awaitable[WriteTxnMarkersResponse]:
        """End transactions in partitions that this node leads."""
        return self._markers.write(request)
