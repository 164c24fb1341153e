"""Decisions about brokers: who is registered, who is alive, and who leads in consequence.

A broker that stops being alive leaves every in-sync set that has another member, and loses its
leaderships to the first living replica in sync. The last member of an in-sync set stays in it,
without leading, so that nobody else can lead with less data. A broker that comes alive leads what
waits for it. Naming a leader always starts a new leader epoch, also when it is the same broker
again: after a restart its log may end earlier than before, and the epoch is how readers find out.

Each decision looks at every partition once; brokers come and go rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.base.ids import Uuid
from penstock.metadata.assignments import active
from penstock.metadata.image import Broker, MetadataImage, Partition, Topic
from penstock.metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

RECOVERING = 1
"""The leader recovery state of a partition that elected a leader outside its in-sync set."""


@dataclass(slots=True)
class Registration:
    """What a broker says of itself when it starts; `incarnation_id` is new at every start."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: list[BrokerEndpoint]
    rack: str | None = None
    log_dirs: list[Uuid] = field(default_factory=list)
    features: list[BrokerFeature] = field(default_factory=list)


class BrokerControl:
    def __init__(self, image: MetadataImage, unclean: Callable[[str], bool]) -> None:
        """`unclean`: whether a topic may elect a leader outside the in-sync set."""
        self._image = image
        self._unclean = unclean

    def register(self, new: Registration, epoch: int, *, fenced: bool) -> list[MetadataRecord]:
        """A broker's new incarnation; `epoch` is the log offset that its record will have.

        A broker that is its own controller and has no peers starts unfenced and leads at once; any
        other starts fenced, leaves the in-sync sets and has to catch up.
        """
        alone = all(broker_id == new.broker_id for broker_id in self._image.brokers)
        invariant(fenced or alone, f"broker {new.broker_id} has peers and must start fenced")
        record = RegisterBrokerRecord(
            broker_id=new.broker_id,
            incarnation_id=new.incarnation_id,
            broker_epoch=epoch,
            end_points=new.endpoints,
            features=new.features,
            rack=new.rack,
            fenced=fenced,
            log_dirs=new.log_dirs,
        )
        changes = self._leave(new.broker_id) if fenced else self._return(new.broker_id)
        return [record, *changes]

    def unregister(self, broker_id: int) -> list[MetadataRecord]:
        broker = self._registered(broker_id)
        record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
        return [*self._leave(broker_id), record]

    def fence(self, broker_id: int) -> list[MetadataRecord]:
        """The broker is not heard from."""
        return [self._change(broker_id, fenced=1), *self._leave(broker_id)]

    def unfence(self, broker_id: int) -> list[MetadataRecord]:
        """The broker has caught up with the metadata and can serve."""
        return [self._change(broker_id, fenced=-1), *self._return(broker_id)]

    def begin_shutdown(self, broker_id: int) -> list[MetadataRecord]:
        """The broker asked to stop: it hands over first."""
        return [self._change(broker_id, in_controlled_shutdown=1), *self._leave(broker_id)]

    def _change(
        self, broker_id: int, fenced: int = 0, in_controlled_shutdown: int = 0
    ) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=self._registered(broker_id).epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )

    def _registered(self, broker_id: int) -> Broker:
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered"
            )
        return broker

    def _leave(self, broker_id: int) -> Iterator[MetadataRecord]:
        brokers = {k: v for k, v in self._image.brokers.items() if k != broker_id}
        for topic, index, partition in self._partitions():
            if broker_id in partition.isr:
                isr = tuple(b for b in partition.isr if b != broker_id) or partition.isr
                leaves = partition.leader == broker_id
                yield from self._elected(brokers, topic, index, partition, isr, leaves)

    def _return(self, broker_id: int) -> Iterator[MetadataRecord]:
        for topic, index, partition in self._partitions():
            waits = partition.leader in (NO_LEADER, broker_id)
            if not waits or broker_id not in partition.replicas:
                continue
            if broker_id in partition.isr:
                yield PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=broker_id)
            elif self._unclean(topic.name):
                yield _unclean_election(topic, index, broker_id)

    def _elected(
        self,
        brokers: Mapping[int, Broker],
        topic: Topic,
        index: int,
        partition: Partition,
        isr: tuple[int, ...],
        leader_gone: bool,
    ) -> Iterator[PartitionChangeRecord]:
        leader = NO_LEADER_CHANGE
        if leader_gone:
            living = [b for b in partition.replicas if active(brokers.get(b))]
            leader = next((b for b in living if b in isr), NO_LEADER)
            if leader == NO_LEADER and living and self._unclean(topic.name):
                yield _unclean_election(topic, index, living[0])
                return
        if leader != NO_LEADER_CHANGE or isr != partition.isr:
            yield PartitionChangeRecord(
                partition_id=index,
                topic_id=topic.id,
                isr=None if isr == partition.isr else list(isr),
                leader=leader,
                leader_recovery_state=NO_RECOVERY_STATE_CHANGE,
            )

    def _partitions(self) -> Iterator[tuple[Topic, int, Partition]]:
        for topic in self._image.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition


def _unclean_election(topic: Topic, index: int, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.id,
        isr=[leader],
        leader=leader,
        leader_recovery_state=RECOVERING,
    )
