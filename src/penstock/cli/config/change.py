"""`penstock config set` and `unset`: change settings while the cluster runs."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.configs import Change
from penstock.cli.config.resource import ResourceName, alter, parse_resource
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json
from penstock.cli.values import parse_pairs


def set_values(
    access: Access,
    resource: ResourceName,
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE", help="Settings with their new values.")
    ],
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Set settings of RESOURCE; what is not named stays as it is."""
    changes = [Change(key, value) for key, value in parse_pairs(settings, "setting").items()]
    _change(access, resource, changes, "set", output_format)


def unset(
    access: Access,
    resource: ResourceName,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Names of settings.")],
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Take settings of RESOURCE away, so that what lies beneath counts again."""
    changes = [Change(key, None) for key in dict.fromkeys(keys)]
    _change(access, resource, changes, "unset", output_format)


def _change(
    access: Access, resource: str, changes: list[Change], done: str, output_format: Format
) -> None:
    whose = parse_resource(resource)
    alter(Brokers(access), whose, changes)
    if output_format is Format.JSON:
        print_json({"resource": resource, done: {c.name: c.value for c in changes}})
    else:
        print(f"{done} {plural(len(changes), 'setting')} of {whose}")
