"""New partitions: where their replicas go, by the placer or by the client's own assignment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.metadata.image import Broker, MetadataImage, ResourceType
from penstock.metadata.placement import Candidate, Load, place
from penstock.metadata.records import PartitionRecord

CORDONED_SETTING: Final = "cordoned.log.dirs"


def active(broker: Broker | None) -> bool:
    """Whether the broker may be in sync and lead."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def cordoned(image: MetadataImage, broker: Broker) -> bool:
    """Whether the broker is to get no new replicas: it says so, or its settings do."""
    own = image.config(ResourceType.BROKER, str(broker.id)).get(CORDONED_SETTING, "")
    return bool(own.strip()) or (
        bool(broker.log_dirs) and set(broker.log_dirs) <= set(broker.cordoned_log_dirs)
    )


def placed(
    image: MetadataImage,
    load: Load,
    partitions: int,
    factor: int,
    rng: Rng,
    existing: Iterable[Sequence[int]] = (),
) -> Iterator[list[int]]:
    """Assignments by the placer, each when it is asked for; between equals the turn begins at a
    random broker.
    """
    brokers = [
        Candidate(broker.id, broker.rack, not active(broker))
        for broker in image.brokers.values()
        if not cordoned(image, broker)
    ]
    if len(brokers) < factor <= len(image.brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a partition cannot have {factor} replica(s): of {len(image.brokers)} brokers "
            f"{len(image.brokers) - len(brokers)} are cordoned; choose a smaller replication "
            f"factor, or delete their {CORDONED_SETTING}",
        )
    return place(brokers, partitions, factor, rng.below(max(len(brokers), 1)), load, existing)


def check_manual(
    image: MetadataImage, assignments: Sequence[Sequence[int]], factor: int | None = None
) -> None:
    """Raises `ApiError` unless the assignments can be followed; all have `factor` replicas."""
    for replicas in assignments:
        check_replicas(image, replicas)
        factor = len(replicas) if factor is None else factor
        if len(replicas) != factor:
            raise _refused(f"has {len(replicas)} replica(s) where the others have {factor}")
        if not any(active(image.brokers[broker_id]) for broker_id in replicas):
            raise _refused(f"puts a partition on {list(replicas)}, of which none is alive")


def check_replicas(image: MetadataImage, replicas: Sequence[int]) -> None:
    """Raises `ApiError` unless the replicas are different registered brokers."""
    if not replicas:
        raise _refused("includes an empty replica list")
    if len(set(replicas)) != len(replicas):
        raise _refused(f"names a broker twice in {list(replicas)}")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise _refused(f"includes broker {broker_id}, which is not registered")


def _refused(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the replica assignment {why}")


def new_partition(
    image: MetadataImage, topic_id: Uuid, index: int, replicas: Sequence[int]
) -> PartitionRecord:
    """The record of a new partition; those replicas are in sync whose broker is alive."""
    isr = [broker_id for broker_id in replicas if active(image.brokers.get(broker_id))]
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[only_directory(image.brokers[broker_id]) for broker_id in replicas],
    )


def only_directory(broker: Broker) -> Uuid:
    """The only data folder of a broker, or the id that means "not assigned yet"."""
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else ZERO_UUID
