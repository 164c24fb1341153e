"""`penstock quota list` and `describe`: what is set, and what holds for somebody."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.auth.client_quotas import (
    CLIENT_ID,
    DEFAULT,
    IP,
    USER,
    Entity,
    Part,
    address,
    candidates,
)
from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table
from penstock.cli.quota import quotas as asked
from penstock.cli.quota.quotas import (
    KEYS,
    Client,
    Ip,
    User,
    entity_of,
    entity_text,
    no_entity,
    read,
    sorted_parts,
    value_text,
)


def list_quotas(access: Access, output_format: OutputFormat = Format.TEXT) -> None:
    """List the quotas of users, clients and addresses."""
    found = read(Brokers(access))
    if output_format is Format.JSON:
        print_json([{"entity": entity, "quotas": quotas} for entity, quotas in found])
        return
    rows = [
        (entity_text(dict(sorted_parts(entity))), key, value_text(key, value))
        for entity, quotas in found
        for key, value in sorted(quotas.items())
    ]
    print_table(("of", "quota", "value"), rows)


def describe(
    access: Access,
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Say which quotas hold for a user, a client or an address, and who shares them.

    A user without a login is ANONYMOUS. The best match counts: of the user with the client id, of
    the user with any other client id, of the user, and so on.
    """
    entity = entity_of(user, False, client, False, ip, False)
    if not entity:
        raise no_entity()
    holding = _holding(read(Brokers(access)), entity)
    if output_format is Format.JSON:
        print_json(
            [
                {"quota": key, "value": value, "entity": dict(of), "shared_by": shared}
                for key, value, of, shared in holding
            ]
        )
        return
    rows = [
        (key, value_text(key, value), entity_text(of), shared) for key, value, of, shared in holding
    ]
    print_table(("quota", "value", "set for", "shared by"), rows)


def _holding(
    found: list[tuple[asked.Entity, Mapping[str, float]]], entity: asked.Entity
) -> list[tuple[str, float, asked.Entity, str]]:
    """The quotas that hold: their values, for whom they are set, who shares them."""
    by_ip = IP in entity
    kind = IP if by_ip else CLIENT_ID
    bounds = {
        (_part(of, USER), _part(of, kind)): (of, quotas)
        for of, quotas in found
        if (IP in of) == by_ip
    }
    name = entity.get(kind) or ""
    who: Entity = (entity.get(USER), address(name) if by_ip else name)
    holding = []
    for key in KEYS:
        for candidate, shares in candidates(*who):
            of, quotas = bounds.get(candidate, ({}, {}))
            if key in quotas:
                holding.append((key, quotas[key], of, _sharing(shares, kind)))
                break
    return holding


def _part(of: asked.Entity, kind: str) -> Part:
    if kind not in of:
        return None
    name = of[kind]
    return DEFAULT if name is None else name


def _sharing(shares: Entity, kind: str) -> str:
    user, name = shares
    if kind == IP:
        return "the address"
    if name is None:
        return "all clients of the user"
    return "all users of the client id" if user is None else "this user's clients of this id"
