"""Requests of any API about one name: every text in them is it, every list has one element."""

from __future__ import annotations

from typing import Any, Final

from penstock.base.ids import ZERO_UUID
from penstock.wire.apis import ApiKey, request_header_version
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.header import RequestHeader
from penstock.wire.schema import Field, Message, Struct
from support.batches import batch

TOPIC, LITERAL, ALLOW = 2, 3, 3
_NUMBERS: Final = {
    "acks": 1,
    "broker_epoch": 1,
    "broker_id": 1,
    "count": 9,
    "current_leader_epoch": -1,
    "endpoint_type": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "iterations": 4096,
    "leader_epoch": -1,
    "max_bytes": 1_000,
    "max_wait_ms": 10,
    "mechanism": 1,
    "num_partitions": 1,
    "operation": 3,
    "partition_max_bytes": 1_000,
    "pattern_type_filter": LITERAL,
    "permission_type": ALLOW,
    "producer_epoch": -1,
    "producer_id": -1,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_pattern_type": LITERAL,
    "resource_type": TOPIC,
    "resource_type_filter": TOPIC,
    "session_timeout_ms": 10_000,
    "timeout_ms": 1_000,
    "transaction_timeout_ms": 10_000,
}
"""Values with which a request gets as far as it can; other numbers are what they are by default."""


def about(request: type[Message], version: int, name: str, topic_id: bytes) -> Any:
    """A request for `name`; where the version has no names of topics, for `topic_id`."""
    if request.API_KEY == ApiKey.ENVELOPE:
        return request(request_data=_create_topics(name), request_principal=None)  # type: ignore[call-arg]
    return _struct(request, version, name, topic_id)


def for_everything(request: type[Message], version: int) -> Any:
    """A request that names nothing: null and empty stand for all that there is."""
    if request.API_KEY == ApiKey.ENVELOPE:
        return request(request_data=_create_topics(""), request_principal=None)  # type: ignore[call-arg]
    nulls = {f.name: None for f in request.FIELDS if _is_null(f, version)}
    made = request(**nulls)
    if "acks" in {f.name for f in request.FIELDS}:
        made.acks = 1  # type: ignore[attr-defined]
    return made


def _is_null(field: Field, version: int) -> bool:
    return version in field.versions and version in field.nullable


def by_id_only(request: type[Struct], version: int) -> bool:
    """Whether topics have an id in the request and no name."""
    carried = [f for f in request.FIELDS if version in f.versions]
    names = {f.name for f in carried}
    inner = [f.struct or (f.element and f.element.struct) for f in carried]
    if "topic_id" in names and not names & {"name", "topic", "topic_name"}:
        return True
    return any(by_id_only(one, version) for one in inner if one is not None)


def _create_topics(name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    body = CreateTopicsRequest(topics=[topic]).encode(7)
    header = RequestHeader(
        request_api_key=ApiKey.CREATE_TOPICS, request_api_version=7, correlation_id=0
    )
    return header.encode(request_header_version(ApiKey.CREATE_TOPICS, 7)) + body


def _struct(cls: type[Struct], version: int, name: str, topic_id: bytes) -> Any:
    only_id = any(f.name == "topic_id" for f in cls.FIELDS) and by_id_only(cls, version)
    return cls(
        **{
            f.name: _value(f, version, name, topic_id if only_id else ZERO_UUID, topic_id)
            for f in cls.FIELDS
            if version in f.versions and version not in f.tagged
        }
    )


def _value(field: Field, version: int, name: str, own_id: bytes, topic_id: bytes) -> Any:
    if field.kind == "array":
        assert field.element is not None
        if field.name in ("forgotten_topics_data", "state_filters"):
            return []
        return [_value(field.element, version, name, own_id, topic_id)]
    if field.kind == "struct":
        assert field.struct is not None
        if version in field.nullable:
            return None
        return _struct(field.struct, version, name, topic_id)
    if field.kind == "string":
        if field.name == "entity_type":
            return "user"
        return None if field.name == "group_instance_id" else name
    if field.kind == "uuid":
        return own_id
    if field.kind in ("bytes", "records"):
        return batch([b"v"])
    return _NUMBERS.get(field.name, field.default)
