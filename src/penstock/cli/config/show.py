"""`penstock config describe` and `get`: settings, and where each value comes from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.config.resource import Entry, ResourceName, parse_resource, read
from penstock.cli.errors import CliError, did_you_mean
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table, remark

HIDDEN = "(hidden)"


def describe(
    access: Access,
    resource: ResourceName,
    everything: Annotated[
        bool, typer.Option("--all", help="Show those at their defaults, too.")
    ] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show the settings of RESOURCE that are not at their defaults, with where each comes from."""
    whose = parse_resource(resource)
    found = read(Brokers(access), whose).values()
    shown = [entry for entry in found if everything or not entry.is_default]
    if output_format is Format.JSON:
        print_json([_facts(entry) for entry in shown])
    elif shown:
        rows = [
            (
                entry.name,
                _text(entry, entry.value),
                entry.source,
                "no" if entry.read_only else "yes",
            )
            for entry in shown
        ]
        print_table(("setting", "value", "source", "can change"), rows)
    else:
        remark(f"every setting of {whose} is at its default: --all shows them")


def get(
    access: Access,
    resource: ResourceName,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="Names of settings.")],
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show each setting KEY of RESOURCE: the value in force, and what lies beneath it."""
    whose = parse_resource(resource)
    found = read(Brokers(access), whose)
    for key in keys:
        if key not in found:
            what = (
                "is not set for the cluster: see what brokers have with `penstock config get"
                f" broker:ID {key}`"
                if not whose.name
                else f"is no setting of {whose}{did_you_mean(key, found)}: see"
                f" `penstock config describe {resource} --all`"
            )
            raise CliError(f"{key} {what}")
    chosen = [found[key] for key in dict.fromkeys(keys)]
    if output_format is Format.JSON:
        print_json([_facts(entry) for entry in chosen])
        return
    rows = []
    for entry in chosen:
        rows.append((entry.name, _text(entry, entry.value), entry.source))
        rows += [
            (f"  {layer.name}", _text(entry, layer.value), layer.source)
            for layer in entry.synonyms[1:]
        ]
    print_table(("setting", "value", "source"), rows)


def _text(entry: Entry, value: str | None) -> str:
    if value is None:
        return HIDDEN if entry.sensitive else "-"
    return value


def _facts(entry: Entry) -> dict[str, Any]:
    return entry._asdict() | {"synonyms": [layer._asdict() for layer in entry.synonyms]}
