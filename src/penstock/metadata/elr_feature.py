"""What it means for settings and partitions that the cluster keeps eligible leader replicas.

Who is eligible follows from `min.insync.replicas`, so the controller and every leader have to go by
the same value. Where the cluster keeps eligible replicas the setting is stored for the cluster,
whatever the files of the nodes say, and no broker has one of its own; it can be changed, but not
removed. A change of it ends what was eligible under the earlier value (`ClearElrRecord`).

When the feature is turned off, partitions without a leader get those who could have led as their
in-sync set, which then is never empty by itself. Kafka forgets them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.partition_index import PartitionIndex
from penstock.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
)
from penstock.metadata.topic_rules import MIN_ISR_SETTING, TopicRules


def enabling(image: MetadataImage, rules: TopicRules) -> Iterator[MetadataRecord]:
    """What has to be decided with the feature: one `min.insync.replicas` for all brokers."""
    if MIN_ISR_SETTING not in image.config(ResourceType.BROKER, ""):
        yield _setting("", str(rules.static_min_isr))
    for (resource_type, name), settings in image.configs.items():
        if resource_type == ResourceType.BROKER and name and MIN_ISR_SETTING in settings:
            yield _setting(name, None)


def disabling(image: MetadataImage, index: PartitionIndex) -> Iterator[MetadataRecord]:
    """Nobody is eligible outside the in-sync set any more."""
    for topic_id, number in index.eligible:
        partition = image.topics_by_id[topic_id].partitions[number]
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
        record.eligible_leader_replicas, record.last_known_elr = [], []
        if not partition.isr:
            record.isr = list(partition.elr or partition.last_known_elr)
        yield record


def cleared(image: MetadataImage, records: list[MetadataRecord]) -> Iterator[MetadataRecord]:
    """What follows from changes of settings."""
    if not image.keeps_elr:
        return
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR_SETTING:
            topic = record.resource_type == ResourceType.TOPIC
            yield ClearElrRecord(topic_name=record.resource_name if topic else "")


def check_min_isr(
    image: MetadataImage, broker: str, touched: Collection[str], new: Mapping[str, str]
) -> None:
    """Raises `ApiError` if the settings of a broker, or of the cluster, cannot become `new`."""
    if not image.keeps_elr or MIN_ISR_SETTING not in touched:
        return
    if broker:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_ISR_SETTING} cannot be set for one broker while the cluster keeps eligible "
            "leader replicas: set it for the cluster, or for a topic",
        )
    if MIN_ISR_SETTING not in new:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_ISR_SETTING} of the cluster cannot be removed while it keeps eligible leader "
            "replicas: set another value",
        )


def _setting(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name=broker, name=MIN_ISR_SETTING, value=value
    )
