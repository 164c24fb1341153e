"""The records of the metadata log, in KRaft's own formats.

Each record is the value of one log record: a frame version, the record's type and its version as
unsigned varints, then the fields. So Apache's tools read our `__cluster_metadata` log. Those of
ACLs, credentials, quotas and roles are in `security_records.py`.
`written_versions` says which version is written of each type: it depends on the finalised level
of metadata.version, so that nodes of two adjacent releases read each other's records. All versions
are read. A type that is not declared here makes the log unreadable for this release: it stops the
start rather than losing what it said.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from penstock.base.errors import PenstockError
from penstock.base.ids import Uuid
from penstock.metadata.security_records import WRITTEN_AT_FIRST as _SECURITY_AT_FIRST
from penstock.metadata.security_records import SecurityRecord
from penstock.wire.record_batch import parse_header
from penstock.wire.records import read_records
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from penstock.wire.varint import Buffer, read_unsigned_varint, unsigned_varint

FRAME_VERSION: Final = 1
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_STATE_CHANGE: Final = -1


class UnreadableRecord(PenstockError):
    """A metadata record that this release cannot interpret."""


class BrokerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[Uuid] = array(uuid, "3+", tag=0, tagged="3+")
    cordoned_log_dirs: list[Uuid] | None = array(
        uuid, "4+", nullable="4+", default=None, tag=1, tagged="4+"
    )


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    name: str = string("0+")
    topic_id: Uuid = uuid("0+")


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", default=NO_LEADER)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[Uuid] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(
        int32, "2+", nullable="2+", default=None, tag=1
    )
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    """What changed of a partition; null, -2 (leader) and -1 (recovery state) mean no change."""

    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    isr: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)
    leader: int = int32("0+", default=NO_LEADER_CHANGE, tag=1)
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8("0+", default=NO_RECOVERY_STATE_CHANGE, tag=5)
    directories: list[Uuid] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(
        int32, "2+", nullable="2+", default=None, tag=6
    )
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    topic_id: Uuid = uuid("0+")


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    name: str = string("0+")
    feature_level: int = int16("0+")


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """`fenced`: -1 the broker has been unfenced, 0 no change, 1 it has been fenced."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[Uuid] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """`min.insync.replicas` has changed for a topic, or for all of them if it names none."""

    topic_name: str = string("0+")


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    pass


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | ClearElrRecord
    | NoOpRecord
    | SecurityRecord
)

METADATA_VERSION: Final = "metadata.version"
"""The feature whose finalised level says in which versions records are written."""
METADATA_VERSION_MIN: Final = 29
"""Kafka's 4.2-IV1."""
METADATA_VERSION_MAX: Final = 30
"""Kafka's 4.3-IV0: registrations say which data folders are cordoned."""
CORDONED_LOG_DIRS_FROM: Final = 30
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
"""The feature at whose level 1 partitions have eligible leader replicas (KIP-966)."""

_WRITTEN_AT_FIRST: Final[dict[type[Message], int]] = {
    RegisterBrokerRecord: 3,
    UnregisterBrokerRecord: 0,
    TopicRecord: 0,
    PartitionRecord: 2,
    ConfigRecord: 0,
    PartitionChangeRecord: 2,
    RemoveTopicRecord: 0,
    FeatureLevelRecord: 0,
    ProducerIdsRecord: 0,
    BrokerRegistrationChangeRecord: 2,
    ClearElrRecord: 0,
    NoOpRecord: 0,
    **_SECURITY_AT_FIRST,
}
_WRITTEN_FROM: Final[dict[int, dict[type[Message], int]]] = {
    CORDONED_LOG_DIRS_FROM: {RegisterBrokerRecord: 4, BrokerRegistrationChangeRecord: 3},
}
"""What each level of metadata.version changes."""
_TYPES: Final = {cls.API_KEY: cls for cls in _WRITTEN_AT_FIRST}


@functools.cache
def written_versions(level: int) -> Mapping[type[Message], int]:
    """Which version of each record is written at this level of metadata.version, so that every
    node that supports the level can read it.
    """
    versions = dict(_WRITTEN_AT_FIRST)
    for start, changed in _WRITTEN_FROM.items():
        if level >= start:
            versions |= changed
    return MappingProxyType(versions)


@functools.cache
def _frames(level: int) -> dict[type[Message], tuple[bytes, int]]:
    return {
        cls: (
            unsigned_varint(FRAME_VERSION)
            + unsigned_varint(cls.API_KEY or 0)
            + unsigned_varint(version),
            version,
        )
        for cls, version in written_versions(level).items()
    }


def encode_record(record: MetadataRecord, level: int) -> bytes:
    """The value of the log record that carries `record`, at a level of metadata.version."""
    frame, version = _frames(level)[type(record)]
    return frame + record.encode(version)


def decode_record(value: Buffer) -> MetadataRecord:
    """The record in a log record's value, or `UnreadableRecord`."""
    frame, pos = read_unsigned_varint(value, 0)
    if frame != FRAME_VERSION:
        raise UnreadableRecord(f"metadata frame version {frame} is not known; {_UPGRADE}")
    kind, pos = read_unsigned_varint(value, pos)
    version, pos = read_unsigned_varint(value, pos)
    cls = _TYPES.get(kind)
    if cls is None or version not in cls.VERSIONS:
        raise UnreadableRecord(
            f"metadata record type {kind} version {version} is not known; {_UPGRADE}"
        )
    return cast(MetadataRecord, cls.decode(value[pos:], version))


def decode_batch(batch: Buffer) -> list[MetadataRecord]:
    """The metadata records of one batch of the log; a control batch has none."""
    if parse_header(batch).is_control:
        return []
    return [decode_record(record.value or b"") for record in read_records(batch)]


_UPGRADE: Final = "the log was written by a newer release or by another program: use that one"
