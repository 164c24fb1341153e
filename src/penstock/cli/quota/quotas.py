"""The requests about quotas, to any broker of any Kafka cluster, and their refusals as sentences.

A quota belongs to an entity: a user, a client id, both, or an address, each by its name or as the
default of those without a quota of their own. What was changed is seen a moment later by the broker
that lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import typer

from penstock.auth.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, reason
from penstock.cli.errors import CliError, did_you_mean, usage_error
from penstock.wire.messages import alter_client_quotas as altering
from penstock.wire.messages import describe_client_quotas as describing

Entity: TypeAlias = Mapping[str, str | None]
"""Kafka's types of its parts to their names; None is the default."""

CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
KEYS: Final = (*CLIENT_KEYS, CONNECTION_CREATION_RATE)
BYTE_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)

User = Annotated[str | None, typer.Option(metavar="NAME", help="A user.")]
Client = Annotated[str | None, typer.Option(metavar="ID", help="A client id.")]
Ip = Annotated[str | None, typer.Option(metavar="ADDRESS", help="An IP address.")]
UserDefaults = Annotated[
    bool, typer.Option("--user-defaults", help="All users without a quota of their own.")
]
ClientDefaults = Annotated[
    bool, typer.Option("--client-defaults", help="All client ids without a quota of their own.")
]
IpDefaults = Annotated[
    bool, typer.Option("--ip-defaults", help="All addresses without a quota of their own.")
]


class MatchType(IntEnum):
    """What a part of a filter wants, as the protocol says it."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


def entity_of(
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> Entity:
    """What the options name; it may be nothing."""
    entity: dict[str, str | None] = {}
    for kind, option, name, is_default in (
        (USER, "user", user, user_defaults),
        (CLIENT_ID, "client", client, client_defaults),
        (IP, "ip", ip, ip_defaults),
    ):
        if name is not None and is_default:
            raise usage_error(f"give --{option} or --{option}-defaults, not both")
        if name == "":
            raise usage_error(f"--{option} has no name")
        if name is not None or is_default:
            entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise usage_error("a quota of an address is not combined with a user or a client id")
    return entity


def check_key(key: str, entity: Entity) -> None:
    """A usage error if the entity cannot have such a quota."""
    keys = (CONNECTION_CREATION_RATE,) if IP in entity else CLIENT_KEYS
    if key not in keys:
        raise usage_error(
            f"{entity_text(entity)} has no quota {key}{did_you_mean(key, keys)}; there are "
            f"{', '.join(keys)}"
        )


def entity_text(entity: Entity) -> str:
    """As `user ann, any other client-id`."""
    parts = (
        f"any other {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items()
    )
    return ", ".join(parts)


def read(
    brokers: Brokers, entity: Entity | None = None
) -> list[tuple[Entity, Mapping[str, float]]]:
    """All quotas, or those of exactly this entity."""
    request = describing.DescribeClientQuotasRequest(
        components=[
            describing.ComponentData(
                entity_type=kind,
                match_type=MatchType.DEFAULT if name is None else MatchType.EXACT,
                match=name,
            )
            for kind, name in (entity or {}).items()
        ],
        strict=entity is not None,
    )
    doing = "list the quotas"
    answer = brokers.ask(request, describing.DescribeClientQuotasResponse, doing)
    _check(answer.error_code, answer.error_message, doing, "DESCRIBE_CONFIGS")
    found = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda one: _order(one[0]))


def _order(entity: Entity) -> list[tuple[str, bool, str]]:
    kinds = {USER: "0", CLIENT_ID: "1"}
    return [
        (kinds.get(kind, kind), name is None, name or "") for kind, name in sorted_parts(entity)
    ]


def sorted_parts(entity: Entity) -> list[tuple[str, str | None]]:
    """The user first."""
    return sorted(entity.items(), reverse=True)


def alter(brokers: Brokers, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Set quotas; None takes one away."""
    entry = altering.RequestEntryData(
        entity=[
            altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            altering.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    doing = f"change the quotas of {entity_text(entity)}"
    request = altering.AlterClientQuotasRequest(entries=[entry])
    answer = brokers.ask(request, altering.AlterClientQuotasResponse, doing)
    for said in answer.entries:
        _check(said.error_code, said.error_message, doing, "ALTER_CONFIGS")


def _check(code: int, message: str | None, doing: str, operation: str) -> None:
    if not code:
        return
    text = f"cannot {doing}: {reason(code, message)}"
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text += f"; that needs {operation} on the cluster"
    raise CliError(text)


def value_text(key: str, value: float) -> str:
    if key == REQUEST_PERCENTAGE:
        return f"{value:g} %"
    whole = f"{value:,.0f}" if value == int(value) else f"{value:g}"
    return whole + (" B/s" if key in BYTE_RATES else " /s")


def no_entity() -> CliError:
    return usage_error(
        "say whose quotas: --user, --client or both, or --ip, each also as --user-defaults and so "
        "on"
    )
