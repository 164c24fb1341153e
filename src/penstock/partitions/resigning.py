"""A replica that was stopped, or whose log refuses writes for good, gives its leadership up.

Another member of the in-sync set has to lead: the controller is asked to take this broker out of
the set, which elects another leader. Until then a log that only refuses writes can be read. If the
replica is the only one in sync, an eligible one leads when it is alive; without one the partition
stays as it is until this node is restarted. The request is repeated every `RETRY_PAUSE_S` for as
long as this node leads according to the metadata. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.base.errors import PenstockError
from penstock.metadata import image as metadata
from penstock.partitions.alter_partition_manager import Call
from penstock.partitions.partition import Partition
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

log = logging.getLogger("penstock.partitions")

RETRY_PAUSE_S = 0.5
ANY_BROKER_EPOCH = -1


class Resignations:
    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        call: Call,
        registered: Callable[[Partition], metadata.Partition | None],
    ) -> None:
        """`call` sends a request to the active controller; `registered` is what the metadata says
        of a partition.
        """
        self._node_id = node_id
        self._registered = registered
        self._broker_epoch = broker_epoch
        self._call = call
        self._tasks: dict[Partition, asyncio.Task[None]] = {}

    def begin(self, partition: Partition) -> None:
        """Another broker should lead `partition`."""
        if partition.leader is None or partition.leader_id != self._node_id:
            return
        if partition in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._resign(partition))
        self._tasks[partition] = task
        task.add_done_callback(lambda _: self._tasks.pop(partition))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _resign(self, partition: Partition) -> None:
        while True:
            registration = self._registered(partition)
            if registration is None or registration.leader != self._node_id:
                return
            others = [b for b in registration.isr if b != self._node_id]
            if others or registration.elr:
                try:
                    await self._call(self._request(partition, registration, others))
                except PenstockError as e:
                    log.warning("the controller could not be asked for another leader: %s", e)
            await asyncio.sleep(RETRY_PAUSE_S)

    def _request(
        self, partition: Partition, registration: metadata.Partition, others: list[int]
    ) -> AlterPartitionRequest:
        isr = [BrokerState(broker_id=id_, broker_epoch=ANY_BROKER_EPOCH) for id_ in others]
        data = RequestPartitionData(
            partition_index=partition.index,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            new_isr_with_epochs=isr,
            leader_recovery_state=registration.recovery_state,
        )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[RequestTopicData(topic_id=partition.topic_id, partitions=[data])],
        )
