"""Writes the markers that end transactions into their partitions, for the coordinator.

Duty: take `WriteMarkers` actions of this node's transaction shards, find the leader of each
partition, have the markers written there, and report when all partitions of a transaction have
theirs. One WriteTxnMarkers request is in flight per node; what gathers meanwhile, of all
transactions, goes into the next one. Partitions led here take the same way without the network.

What an answer means is in `_OUTCOMES`. A failed write is retried after a pause that grows from
`RETRY_S` to `RETRY_S_MAX`, at the leader of that time; a change in the metadata ends the pause, and
what is queued for or on its way to a former leader goes to the new one as well: the old one may
hang. A partition without a leader waits for one; a partition or topic that is gone needs no marker.
When a shard is dropped, so are its actions: the next leader of its partition finds the prepared
transactions in the log and sends their markers again; a marker written twice does no harm.

Limits: `TRANSACTIONS_PER_REQUEST_MAX`. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode, PenstockError, known_code
from penstock.base.ids import TopicPartition
from penstock.peers.errors import PeerUnreachable
from penstock.peers.peers import Channel, Peers
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from penstock.coordinator.transaction.ending import WriteMarkers
    from penstock.metadata.delta import MetadataDelta
    from penstock.metadata.image import MetadataImage
    from penstock.partitions.metadata_brokers import MetadataBrokers

log = logging.getLogger("penstock.coordinating")

RETRY_S: Final = 0.02
RETRY_S_MAX: Final = 0.5
TRANSACTIONS_PER_REQUEST_MAX: Final = 1_000


class _Outcome(Enum):
    WRITTEN = "the partition has its marker, or needs none"
    OVERRULED = "a newer producer or coordinator has taken over: nothing more is to be written"
    AGAIN = "to be tried again"


_OUTCOMES: Final = {
    ErrorCode.NONE: _Outcome.WRITTEN,
    # Such a partition cannot hold a transactional record.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Outcome.WRITTEN,
    ErrorCode.UNSUPPORTED_VERSION: _Outcome.WRITTEN,
    ErrorCode.INVALID_PRODUCER_EPOCH: _Outcome.OVERRULED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: _Outcome.OVERRULED,
}
"""By the error code of a partition; every other one is `AGAIN`."""


class _Ending:
    """One transaction whose markers are being written."""

    __slots__ = ("action", "ended", "over", "pause_s", "remaining", "retry", "shard", "waiting")

    def __init__(self, shard: int, action: WriteMarkers) -> None:
        self.shard = shard
        self.action = action
        self.remaining = dict.fromkeys(action.partitions)
        """The partitions that are not known to have their marker."""
        self.waiting: dict[TopicPartition, None] = {}
        """Those that wait for a leader or for the end of a pause."""
        self.retry: asyncio.TimerHandle | None = None
        self.pause_s = 0.0
        self.over = False
        self.ended: asyncio.Future[None] | None = None
        """Done at the end, if something waits for it."""


class TransactionMarkers:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataImage,
        brokers: MetadataBrokers,
        peers: Peers,
        *,
        write_here: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]],
        on_written: Callable[[int, WriteMarkers], None],
    ) -> None:
        """`write_here` writes markers to partitions of this node; `on_written` is called with the
        shard and the action when every partition has its marker.
        """
        self._node_id = node_id
        self._metadata = metadata
        self._brokers = brokers
        self._peers = peers
        self._write_here = write_here
        self._on_written = on_written
        self._loop = asyncio.get_running_loop()
        self._endings: dict[str, _Ending] = {}
        """By transactional id, which has one transaction at a time."""
        self._queues: dict[int, dict[_Ending, dict[TopicPartition, None]]] = {}
        """By node: what its next request is about."""
        self._in_flight: dict[int, dict[_Ending, dict[TopicPartition, None]]] = {}
        """By node: what its request under way is about."""
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._stopped = False

    @property
    def pending(self) -> int:
        """How many transactions are being ended."""
        return len(self._endings)

    async def ended(self, transactional_id: str, timeout_s: float) -> None:
        """Wait until the transaction that is being ended is over, at most so long."""
        ending = self._endings.get(transactional_id)
        if ending is not None:
            if ending.ended is None:
                ending.ended = self._loop.create_future()
            await asyncio.wait([ending.ended], timeout=timeout_s)

    def is_ending(self, transactional_id: str) -> bool:
        return transactional_id in self._endings

    def add(self, shard: int, action: WriteMarkers) -> None:
        """Begin to write the markers of a transaction of `shard`."""
        former = self._endings.get(action.transactional_id)
        if former is not None:
            self._drop(former)
        ending = self._endings[action.transactional_id] = _Ending(shard, action)
        self._route(ending, action.partitions)

    def forget(self, shard: int) -> None:
        """The shard was dropped: its transactions do not belong to this node any more."""
        for ending in [e for e in self._endings.values() if e.shard == shard]:
            self._drop(ending)

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image: leaders may have moved, topics may be gone."""
        if not (delta.changed_partitions or delta.deleted_topics or delta.changed_brokers):
            return
        for ending in list(self._endings.values()):
            if ending.waiting:
                self._try_again(ending)
        for node, sent in [*self._queues.items(), *self._in_flight.items()]:
            for ending, partitions in list(sent.items()):
                moved = [tp for tp in partitions if self._leader(tp) != node]
                for tp in moved:
                    del partitions[tp]
                if not partitions:
                    del sent[ending]
                if moved and not ending.over:
                    self._route(ending, moved)

    async def stop(self) -> None:
        self._stopped = True
        for ending in list(self._endings.values()):
            self._drop(ending)
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- where a marker goes -------------------------------------------------------------------

    def _route(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            leader = self._leader(tp)
            if leader is None:
                ending.remaining.pop(tp, None)  # nothing reads what is gone
            elif leader < 0 or self._brokers.address(leader) is None:
                ending.waiting[tp] = None
            else:
                self._queues.setdefault(leader, {}).setdefault(ending, {})[tp] = None
                self._send_soon(leader)
        if not ending.remaining:
            # In the next turn: the shard may still be passing its actions.
            self._loop.call_soon(self._finish, ending)

    def _leader(self, tp: TopicPartition) -> int | None:
        """The node that leads a partition, less than 0 while none does; None if it is gone."""
        topic = self._metadata.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        return topic.partitions[tp.partition].leader

    def _send_soon(self, node: int) -> None:
        if node not in self._sending and not self._stopped:
            # The task begins after this loop turn, so that the turn's markers share a request.
            self._sending[node] = self._loop.create_task(self._send_all(node))

    def _try_later(self, ending: _Ending, partitions: Iterable[TopicPartition]) -> None:
        ending.waiting.update(dict.fromkeys(partitions))
        if ending.retry is None and not ending.over:
            ending.pause_s = min(RETRY_S_MAX, ending.pause_s * 2 or RETRY_S)
            ending.retry = self._loop.call_later(ending.pause_s, self._try_again, ending)

    def _try_again(self, ending: _Ending) -> None:
        if ending.retry is not None:
            ending.retry.cancel()
            ending.retry = None
        partitions, ending.waiting = ending.waiting, {}
        self._route(ending, partitions)

    def _finish(self, ending: _Ending) -> None:
        if not ending.over:
            self._drop(ending)
            self._on_written(ending.shard, ending.action)

    def _drop(self, ending: _Ending) -> None:
        """Nothing more is sent for this transaction; an answer on its way is ignored."""
        ending.over = True
        if ending.retry is not None:
            ending.retry.cancel()
        if ending.ended is not None:
            ending.ended.set_result(None)
        for queue in self._queues.values():
            queue.pop(ending, None)
        del self._endings[ending.action.transactional_id]

    # -- sending -------------------------------------------------------------------------------

    async def _send_all(self, node: int) -> None:
        try:
            while queue := self._queues.get(node):
                batch = dict(islice(queue.items(), TRANSACTIONS_PER_REQUEST_MAX))
                for ending in batch:
                    del queue[ending]
                self._in_flight[node] = batch
                await self._send(node, batch)
        finally:
            self._in_flight.pop(node, None)
            del self._sending[node]
            if not self._queues.get(node):
                self._queues.pop(node, None)

    async def _send(self, node: int, batch: dict[_Ending, dict[TopicPartition, None]]) -> None:
        request = WriteTxnMarkersRequest(
            markers=[_marker(ending.action, partitions) for ending, partitions in batch.items()]
        )
        try:
            response = await self._call(node, request)
        except Exception as e:
            if isinstance(e, PenstockError):
                log.warning("the ends of %d transactions could not be sent: %s", len(batch), e)
            else:
                # Retried whatever is wrong: consumers must not wait for ever.
                log.exception("the ends of %d transactions could not be written", len(batch))
            for ending, partitions in batch.items():
                self._try_later(ending, partitions)
            return
        codes = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        for ending, partitions in batch.items():
            producer_id = ending.action.producer_id
            missing = ErrorCode.UNKNOWN_SERVER_ERROR
            self._take_answer(
                ending,
                {tp: known_code(codes.get((producer_id, *tp), missing)) for tp in partitions},
            )

    async def _call(self, node: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if node == self._node_id:
            return await self._write_here(request)
        address = self._brokers.address(node)
        if address is None:
            raise PeerUnreachable(f"node {node} is not registered any more")
        response = await self._peers.send(address, Channel.MARKERS, request)
        assert isinstance(response, WriteTxnMarkersResponse)
        return response

    def _take_answer(self, ending: _Ending, codes: dict[TopicPartition, ErrorCode]) -> None:
        if ending.over:
            return
        again = []
        for tp, code in codes.items():
            outcome = _OUTCOMES.get(code, _Outcome.AGAIN)
            if outcome is _Outcome.WRITTEN:
                ending.remaining.pop(tp, None)
            elif outcome is _Outcome.AGAIN:
                log.info(
                    "the marker of %r in %s: %s", ending.action.transactional_id, tp, code.name
                )
                again.append(tp)
            else:
                log.warning(
                    "the end of transaction %r is given up: %s answered %s",
                    ending.action.transactional_id,
                    tp,
                    code.name,
                )
                self._drop(ending)
                return
        if again:
            self._try_later(ending, again)
        elif not ending.remaining:
            self._finish(ending)


def _marker(action: WriteMarkers, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=action.producer_id,
        producer_epoch=action.producer_epoch,
        transaction_result=action.commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=action.coordinator_epoch,
        transaction_version=action.transaction_version,
    )
