"""Quotas of clients set over the wire, for tests against any broker."""

from __future__ import annotations

from typing import Any

from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from penstock.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]
"""By Kafka's types; None is the default."""


def entry(entity: Entity, **quotas: float | None) -> RequestEntryData:
    """Sets quotas of an entity; None takes one away."""
    return RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in quotas.items()
        ],
    )


def alter(broker: BrokerProcess, *entries: RequestEntryData) -> list[int]:
    """The error code of each entry."""
    with RawClient(broker.host, broker.port) as client:
        answer = client.call(AlterClientQuotasRequest(entries=list(entries)), 1)
    return [said.error_code for said in answer.entries]


def described(broker: BrokerProcess, *parts: ComponentData, strict: bool = False) -> Any:
    """The error code, and what there is as `{entity: {key: value}}`."""
    request = DescribeClientQuotasRequest(components=list(parts), strict=strict)
    with RawClient(broker.host, broker.port) as client:
        answer = client.call(request, 1)
    found = {
        tuple(sorted((p.entity_type, p.entity_name or "") for p in one.entity)): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries or ()
    }
    return answer.error_code, found


def part(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


def set_quotas(broker: BrokerProcess, entity: Entity, **quotas: float | None) -> None:
    """And waits until the broker that was asked has them."""
    assert alter(broker, entry(entity, **quotas)) == [0]
    parts = [part(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()]
    wanted = {key: value for key, value in quotas.items() if value is not None}

    def there() -> bool:
        found = described(broker, *parts, strict=True)[1]
        values: dict[str, float] = next(iter(found.values()), {})
        return all(values.get(key) == wanted.get(key) for key in quotas)

    eventually(there)
