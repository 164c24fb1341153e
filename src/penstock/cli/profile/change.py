"""`penstock profile set`, `use` and `delete`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.errors import usage_error
from penstock.cli.options import TIMEOUT_S_DEFAULT
from penstock.cli.output import remark
from penstock.cli.profile.own import own_profiles
from penstock.kafka.given import above, gather
from penstock.kafka.librdkafka import VOCABULARY
from penstock.kafka.settings import BOOTSTRAP, Settings, client_of

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


def set_profile(
    name: Name,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT[,HOST:PORT...]",
            help="Brokers to ask first.",
        ),
    ] = None,
    xs: Annotated[
        list[str] | None,
        typer.Option(
            "-X",
            metavar="KEY=VALUE",
            help="A setting of the Kafka client; may be repeated. Others see what is typed: give"
            " passwords in a file.",
        ),
    ] = None,
    config_file: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="File with such settings, in place of all that the profile had.",
        ),
    ] = None,
) -> None:
    """Make a profile or change its settings; what is not named stays as it is."""
    if bootstrap is None and not xs and config_file is None:
        raise usage_error("nothing to set: give -b HOST:PORT, -X KEY=VALUE or --config FILE")
    profiles = own_profiles()
    path = profiles.path(name)
    before = profiles.read(name) if path.exists() and config_file is None else {}
    given = gather(VOCABULARY, xs or (), config_file, {}).values
    if bootstrap is not None:
        _ = Access.of(bootstrap, TIMEOUT_S_DEFAULT).addresses  # which refuses what is none
        given[BOOTSTRAP] = bootstrap
    settings = above(_with_whole_paths(given), before)
    client_of(Settings(settings, VOCABULARY.spelling))  # which refuses what does not fit together
    profiles.write(name, settings)
    remark(f"profile {name} is in {path}")


def use(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the profile.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile any more.")] = False,
) -> None:
    """Have all commands use a profile where they name no other."""
    if none == (name is not None):
        raise usage_error("say which profile to use: NAME, or --none")
    own_profiles().use(name)


def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of the profiles.")],
) -> None:
    """Delete profiles."""
    profiles = own_profiles()
    for name in names:
        profiles.existing(name)
    for name in names:
        profiles.delete(name)


def _with_whole_paths(settings: dict[str, str]) -> dict[str, str]:
    """Files by names that hold in any folder."""
    return {
        name: os.path.abspath(value) if name.endswith(".location") and value else value
        for name, value in settings.items()
    }
