"""Sends the changes of in-sync sets that leaders want to the controller.

Changes gather while a request is on its way; one request carries all that have gathered, one is in
flight at a time. A request that got no answer is sent again after a pause; a change that its leader
no longer waits for (the metadata has overtaken it) is left out. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.base.errors import ErrorCode, PenstockError
from penstock.base.ids import Uuid
from penstock.partitions.partition import Partition
from penstock.replica.leader import IsrChange
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)

log = logging.getLogger("penstock.partitions")

RETRY_PAUSE_S = 0.05
REFUSED_PAUSE_S = 0.5
"""After how long a leader checks again whether it wants what the controller has refused."""
PARTITIONS_PER_REQUEST_MAX = 1_000

Call = Callable[[Any], Awaitable[Any]]
"""Sends a request to the active controller, wherever that is."""


class AlterPartitionManager:
    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        call: Call,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._wanted: OrderedDict[Partition, IsrChange] = OrderedDict()
        self._sending: asyncio.Task[None] | None = None
        self._stopped = False
        self.shrinks_total = 0
        self.expands_total = 0
        self.failures_total = 0

    @property
    def totals(self) -> tuple[int, int, int]:
        """Shrinks, expands, failures."""
        return self.shrinks_total, self.expands_total, self.failures_total

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self._wanted[partition] = change
        if self._sending is None and not self._stopped:
            # The task begins after this loop turn, so that the whole turn's changes share a
            # request.
            self._sending = self._loop.create_task(self._send_all())

    async def stop(self) -> None:
        self._stopped = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        try:
            while batch := self._take_batch():
                if not await self._send(batch):
                    for partition, change in batch.items():
                        self._wanted.setdefault(partition, change)
                    await asyncio.sleep(RETRY_PAUSE_S)
        finally:
            self._sending = None

    def _take_batch(self) -> dict[Partition, IsrChange]:
        """The changes of the next request, without those that are outdated."""
        batch: dict[Partition, IsrChange] = {}
        while self._wanted and len(batch) < PARTITIONS_PER_REQUEST_MAX:
            partition, change = self._wanted.popitem(last=False)
            if partition.leader is not None and partition.leader.pending is change:
                batch[partition] = change
        return batch

    async def _send(self, batch: dict[Partition, IsrChange]) -> bool:
        """Send one request; whether it was answered, even if some changes were refused."""
        try:
            response = await self._call(self._request(batch))
        except PenstockError as e:
            log.warning("the controller could not be asked to change in-sync replicas: %s", e)
            self.failures_total += 1
            return False
        if response.error_code:
            log.warning(
                "the controller refuses to change in-sync replicas: %s",
                ErrorCode(response.error_code).name,
            )
            self.failures_total += 1
            return False
        self._take_answers(batch, response)
        return True

    def _request(self, batch: dict[Partition, IsrChange]) -> AlterPartitionRequest:
        topics: dict[Uuid, list[RequestPartitionData]] = {}
        for partition, change in batch.items():
            topics.setdefault(partition.topic_id, []).append(
                RequestPartitionData(
                    partition_index=partition.index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in change.isr
                    ],
                    partition_epoch=change.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                RequestTopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _take_answers(
        self, batch: dict[Partition, IsrChange], response: AlterPartitionResponse
    ) -> None:
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        for partition, change in batch.items():
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None:
                answer = ResponsePartitionData(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            self._take_answer(partition, change, answer)

    def _ask_again(self, partition: Partition, change: IsrChange) -> None:
        if partition.leader is not None and partition.leader.pending is change:
            self.submit(partition, change)

    def _check_again(self, partition: Partition) -> None:
        if not self._stopped:
            partition.leadership.check()

    def _take_answer(
        self, partition: Partition, change: IsrChange, answer: ResponsePartitionData
    ) -> None:
        if answer.error_code:
            self.failures_total += 1
            if partition.leadership.refused(change, answer.error_code):
                self._loop.call_later(RETRY_PAUSE_S, self._ask_again, partition, change)
            else:
                self._loop.call_later(REFUSED_PAUSE_S, self._check_again, partition)
            return
        if change.expands:
            self.expands_total += 1
        else:
            self.shrinks_total += 1
        partition.leadership.altered(
            change, answer.isr, answer.leader_epoch, answer.partition_epoch
        )
