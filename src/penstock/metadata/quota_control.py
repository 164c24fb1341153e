"""Decisions about client quotas: set, remove; and which there are.

A quota belongs to an entity: a user, a client id or both, or an address; a part without a name is
the default of its type. An entity is changed as a whole or not at all, and one bad entity does not
spoil the others. A record is written only for what really changes.

Unlike Kafka: an entity that is in a request twice is not changed at all (there the first change is
made, and refused in the answer); an address is an address, never a host name, since a decision asks
no name service; what is not a number is no quota.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps
from penstock.metadata.acl_control import RECORDS_PER_REQUEST_MAX, too_many_records
from penstock.metadata.delta import QuotaEntity
from penstock.metadata.records import MetadataRecord
from penstock.metadata.security_image import Quotas, SecurityImage, quota_entity, quota_record
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.wire.messages import describe_client_quotas as describing
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    ResponseEntryData,
)
from penstock.wire.schema import INT32_MAX, INT64_MAX

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class _Whole(NamedTuple):
    """A quota in whole numbers, and the type that its highest value has in Kafka."""

    highest: int
    type: str


_CLIENT_KEYS: Final[Mapping[str, _Whole | None]] = {
    "producer_byte_rate": _Whole(INT64_MAX, "a LONG"),
    "consumer_byte_rate": _Whole(INT64_MAX, "a LONG"),
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[Mapping[str, _Whole | None]] = {
    "connection_creation_rate": _Whole(INT32_MAX, "an INT")
}
_FRACTION_MAX: Final = 1e-6
"""What may be left of a whole number that was sent as a fraction."""


class MatchType(IntEnum):
    """What a part of a filter wants of the entities."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


def alter_quotas(
    security: SecurityImage, request: AlterClientQuotasRequest
) -> Steps[tuple[list[MetadataRecord], AlterClientQuotasResponse]]:
    records: list[MetadataRecord] = []
    results = []
    entities = [
        quota_entity({part.entity_type: part.entity_name for part in entry.entity}.items())
        for entry in request.entries
    ]
    times = Counter(entities)
    changes = dict(zip(entities, [entry.ops for entry in request.entries], strict=True))
    for number, (entity, ops) in enumerate(changes.items(), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        try:
            if times[entity] > 1 or len({op.key for op in ops}) < len(ops):
                raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
            records += _altered(security, entity, ops)
            results.append(ResponseEntryData(error_message=None, entity=_parts(entity)))
        except ApiError as e:
            results.append(
                ResponseEntryData(error_code=e.code, error_message=e.message, entity=_parts(entity))
            )
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    return ([] if request.validate_only else records), AlterClientQuotasResponse(entries=results)


def _altered(
    security: SecurityImage, entity: QuotaEntity, ops: list[OpData]
) -> list[MetadataRecord]:
    keys = _keys_of(entity)
    current = security.quotas.get(entity, {})
    records: list[MetadataRecord] = []
    for op in ops:
        if op.remove:
            if op.key in current:
                records.append(quota_record(entity, op.key, None))
            continue
        _check_value(keys, op.key, op.value)
        if current.get(op.key) != op.value:
            records.append(quota_record(entity, op.key, op.value))
    return records


def _keys_of(entity: QuotaEntity) -> Mapping[str, _Whole | None]:
    """The quotas that the entity can have; `ApiError` if it is no entity."""
    parts = dict(entity)
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in parts:
        return _CLIENT_KEYS
    if len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId"
        )
    if parts[IP] is not None:
        _check_address(parts[IP])
    return _IP_KEYS


def _check_address(text: str | None) -> None:
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        raise _invalid(f"{text} is not a valid IP or resolvable host.") from None


def _check_value(keys: Mapping[str, _Whole | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    whole = keys[key]
    if whole is None:
        return
    if value > whole.highest:
        raise _invalid(f"Proposed value for {key} is too large for {whole.type}.")
    if value % 1.0 > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _parts(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _text(entity: QuotaEntity) -> str:
    inside = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{inside}}})"


def describe_quotas(
    security: SecurityImage, request: describing.DescribeClientQuotasRequest
) -> Steps[describing.DescribeClientQuotasResponse]:
    """Those of the entities that have all the parts that the request wants, and no others if it is
    strict, as they are when it begins; `ApiError` if the request contradicts itself.
    """
    wanted = _wanted(request.components)
    entries = []
    for number, (entity, quotas) in enumerate(list(security.quotas.items()), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        if _matches(dict(entity), wanted, strict=request.strict):
            entries.append(_entry(entity, quotas))
    return describing.DescribeClientQuotasResponse(error_message=None, entries=entries)


_Wanted = Mapping[str, tuple[MatchType, str | None]]


def _wanted(components: list[describing.ComponentData]) -> _Wanted:
    wanted: dict[str, tuple[MatchType, str | None]] = {}
    for part in components:
        kind = part.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        try:
            match = MatchType(part.match_type)
        except ValueError:
            raise _invalid(f"Unknown match type {part.match_type}") from None
        if match is MatchType.EXACT and part.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match is not MatchType.EXACT and part.match is not None:
            name = "DEFAULT" if match is MatchType.DEFAULT else "SPECIFIED"
            raise _invalid(
                f"Request specified MATCH_TYPE_{name}, but also specified a match string."
            )
        wanted[kind] = (match, part.match)
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _matches(parts: Mapping[str, str | None], wanted: _Wanted, *, strict: bool) -> bool:
    if strict and len(parts) != len(wanted):
        return False
    return all(
        kind in parts and (match is MatchType.ANY or parts[kind] == name)
        for kind, (match, name) in wanted.items()
    )


def _entry(entity: QuotaEntity, quotas: Quotas) -> describing.EntryData:
    return describing.EntryData(
        entity=[describing.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[describing.ValueData(key=key, value=value) for key, value in quotas.items()],
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
