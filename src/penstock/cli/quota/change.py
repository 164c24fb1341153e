"""`penstock quota set` and `unset`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.errors import CliError, usage_error
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json
from penstock.cli.quota.quotas import (
    BYTE_RATES,
    Client,
    ClientDefaults,
    Entity,
    Ip,
    IpDefaults,
    User,
    UserDefaults,
    alter,
    check_key,
    entity_of,
    entity_text,
    no_entity,
    read,
    value_text,
)
from penstock.cli.values import parse_pairs, parse_size

Settings = Annotated[
    list[str],
    typer.Argument(
        metavar="QUOTA=VALUE", help="As producer_byte_rate=10MB or request_percentage=50."
    ),
]
Keys = Annotated[
    list[str] | None, typer.Argument(metavar="[QUOTA]...", help="Which; with --all, every one.")
]
All = Annotated[bool, typer.Option("--all", help="Every quota of the entity.")]


def set_quotas(
    settings: Settings,
    access: Access,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Set quotas of a user, a client, both, or an address.

    They hold at once, for each broker by itself.
    """
    entity = entity_of(user, user_defaults, client, client_defaults, ip, ip_defaults)
    if not entity:
        raise no_entity()
    wanted = {
        key: _value(key, text, entity) for key, text in parse_pairs(settings, "QUOTA=VALUE").items()
    }
    alter(Brokers(access), entity, wanted)
    if output_format is Format.JSON:
        print_json({"entity": dict(entity), "set": wanted})
    else:
        for key, value in wanted.items():
            print(f"{entity_text(entity)}: {key} is {value_text(key, value)}")


def unset(
    access: Access,
    keys: Keys = None,
    every: All = False,
    user: User = None,
    user_defaults: UserDefaults = False,
    client: Client = None,
    client_defaults: ClientDefaults = False,
    ip: Ip = None,
    ip_defaults: IpDefaults = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Take quotas away."""
    entity = entity_of(user, user_defaults, client, client_defaults, ip, ip_defaults)
    if not entity:
        raise no_entity()
    if bool(keys) == every:
        raise usage_error("name the quotas to take away, or give --all")
    for key in keys or ():
        check_key(key, entity)
    brokers = Brokers(access)
    there = dict(value for _, quotas in read(brokers, entity) for value in quotas.items())
    gone = list(there) if every else list(dict.fromkeys(keys or ()))
    for key in gone:
        if key not in there:
            raise CliError(f"{entity_text(entity)} has no quota {key}; see `penstock quota list`")
    if gone:
        alter(brokers, entity, dict.fromkeys(gone))
    if output_format is Format.JSON:
        print_json({"entity": dict(entity), "unset": gone})
    else:
        for key in gone:
            print(f"{entity_text(entity)}: {key} is gone")


def _value(key: str, text: str, entity: Entity) -> float:
    check_key(key, entity)
    try:
        value = float(parse_size(text)) if key in BYTE_RATES else float(text)
    except ValueError:
        raise usage_error(f"{key} is a number, not {text!r}") from None
    if not value > 0:
        raise usage_error(f"{key} must be greater than 0")
    return value
