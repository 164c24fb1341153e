"""Asks a transaction's coordinator whether partitions are in the transaction, or to add them.

Duty: one question, one answer, per transaction and set of partitions, wherever the coordinator is:
in this process, or on another node, to which all that is waiting goes in one AddPartitionsToTxn
request. The caller decides what an answer means and whether to retry.

Limits: one request in flight per coordinating node, with one entry per transactional id; the rest
waits for the next; `ANSWER_S_MAX`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ErrorCode, PenstockError
from penstock.base.ids import TopicPartition
from penstock.partitions.metadata_brokers import MetadataBrokers
from penstock.peers.connection import Address
from penstock.peers.peers import Channel, Peers
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.schema import Message

log = logging.getLogger("penstock.coordinating")

VERSION = 5
"""Of AddPartitionsToTxn, as brokers send it to each other."""
ANSWER_S_MAX: Final = 5.0
"""A coordinator that hangs delays its producers for no longer: they get a retriable error."""

Errors: TypeAlias = dict[TopicPartition, ErrorCode]
"""The partitions that are not in the transaction, and why."""


class SupportedOperation(Enum):
    """What the version of a client's request lets its broker do for it (Kafka's names)."""

    DEFAULT_ERROR = "default error"  # verify; TRANSACTION_ABORTABLE is unknown to the client
    GENERIC_ERROR = "generic error"  # verify
    ADD_PARTITION = "add partition"  # put the partition into the transaction

    @property
    def adds(self) -> bool:
        """Whether each transaction has its own epoch, and a write adds its partition (KIP-890)."""
        return self is SupportedOperation.ADD_PARTITION


class LocalCoordinator(Protocol):
    """The transaction coordinator of this node."""

    def leader_of(self, key: str) -> int | None:
        """The node that coordinates a transactional id, as far as the metadata knows."""

    def submit(
        self, key: str, request: Message, version: int, client_id: str, client_host: str
    ) -> Message | Awaitable[Message]:
        """The answer to a request about one transactional id, or a future of it."""


class _Question(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    answer: asyncio.Future[Errors]


class TransactionVerifier:
    def __init__(
        self,
        node_id: int,
        brokers: MetadataBrokers,
        peers: Peers,
        coordinator: LocalCoordinator,
    ) -> None:
        self._node_id = node_id
        self._brokers = brokers
        self._peers = peers
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, list[_Question]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._stopped = False
        self.failures_total = 0
        """Partitions that were asked for and are not in their transaction."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        operation: SupportedOperation,
    ) -> Errors:
        """Ask once; the partitions that cannot be written to, each with a code that the client's
        version knows.
        """
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not operation.adds,
            topics=[AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics.items()],
        )
        errors = await self._ask(transaction)
        self.failures_total += len(errors)
        if operation is SupportedOperation.DEFAULT_ERROR:
            return {tp: _TO_OLD_CLIENTS.get(code, code) for tp, code in errors.items()}
        return errors

    async def _ask(self, transaction: AddPartitionsToTxnTransaction) -> Errors:
        node = self._coordinator.leader_of(transaction.transactional_id)
        if node is None or self._stopped:
            return _all(transaction, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if node == self._node_id:
            return await self._ask_here(transaction)
        question = _Question(transaction, self._loop.create_future())
        self._waiting.setdefault(node, []).append(question)
        if node not in self._sending:
            # The task begins after this loop turn, so that the whole turn's questions share a
            # request.
            self._sending[node] = self._loop.create_task(self._send_all(node))
        return await question.answer

    async def _ask_here(self, transaction: AddPartitionsToTxnTransaction) -> Errors:
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = self._coordinator.submit(transaction.transactional_id, request, VERSION, "", "")
        if inspect.isawaitable(response):
            response = await response
        assert isinstance(response, AddPartitionsToTxnResponse)
        return _errors(transaction, response)

    # -- other nodes ---------------------------------------------------------------------------

    async def _send_all(self, node: int) -> None:
        batch: list[_Question] = []
        try:
            while batch := self._take_batch(node):
                await self._send(node, batch)
        finally:
            # No caller is left waiting, whatever has ended this.
            for question in (*batch, *self._waiting.pop(node, ())):
                if not question.answer.done():
                    errors = _all(question.transaction, ErrorCode.NETWORK_EXCEPTION)
                    question.answer.set_result(errors)
            del self._sending[node]

    def _take_batch(self, node: int) -> list[_Question]:
        """What goes into the next request: the first question of each transactional id."""
        batch: dict[str, _Question] = {}
        rest: list[_Question] = []
        for question in self._waiting.pop(node, ()):
            transactional_id = question.transaction.transactional_id
            if transactional_id in batch:
                rest.append(question)
            else:
                batch[transactional_id] = question
        if rest:
            self._waiting[node] = rest
        return list(batch.values())

    async def _send(self, node: int, batch: list[_Question]) -> None:
        address = self._brokers.address(node)
        response = None if address is None else await self._call(address, batch)
        for question in batch:
            if response is None:
                errors = _all(question.transaction, ErrorCode.NETWORK_EXCEPTION)
            else:
                errors = _errors(question.transaction, response)
            if not question.answer.done():
                question.answer.set_result(errors)

    async def _call(
        self, address: Address, batch: list[_Question]
    ) -> AddPartitionsToTxnResponse | None:
        request = AddPartitionsToTxnRequest(transactions=[q.transaction for q in batch])
        try:
            response = await self._peers.send(
                address, Channel.VERIFICATION, request, VERSION, ANSWER_S_MAX
            )
        except PenstockError as e:
            log.warning("transactions could not be verified with %s: %s", address, e)
            return None
        assert isinstance(response, AddPartitionsToTxnResponse)
        return response

    async def stop(self) -> None:
        self._stopped = True
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_TO_CLIENTS: Final = {
    # What producers know how to handle in the answer to a Produce.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # The client needs no right on the cluster: it only learns that nothing was verified.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}
_TO_OLD_CLIENTS: Final = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}


def _all(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> Errors:
    return {
        TopicPartition(topic.name, index): code
        for topic in transaction.topics
        for index in topic.partitions
    }


def _errors(
    transaction: AddPartitionsToTxnTransaction, response: AddPartitionsToTxnResponse
) -> Errors:
    if response.error_code:
        code = ErrorCode(response.error_code)
        return _all(transaction, _TO_CLIENTS.get(code, code))
    answered = {
        TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
        for answer in response.results_by_transaction
        if answer.transactional_id == transaction.transactional_id
        for topic in answer.topic_results
        for result in topic.results_by_partition
    }
    # What was asked and not answered is not known to be in the transaction.
    errors = _all(transaction, ErrorCode.NETWORK_EXCEPTION) | answered
    return {
        tp: _TO_CLIENTS.get(code, code) for tp, code in errors.items() if code != ErrorCode.NONE
    }
