"""`penstock encryption new-key`: the next version of a key, by which new segments are encrypted."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.base.errors import PenstockError
from penstock.cli.encryption.folder import ConfigFile, Settings, keys_of, node_config
from penstock.cli.errors import CliError
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json


def new_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Id of the key.")],
    config: ConfigFile = None,
    settings: Settings = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Make a new version of KEY, or its first one, where a node's settings say that keys are.

    In a file of keys it is added; a file that every node has of its own has to be copied to the
    others then. In Vault the key is rotated, or made.
    """
    keys = keys_of(node_config(config, settings))
    assert keys.provider is not None
    try:
        version = keys.provider.new_version(key)
    except PenstockError as e:
        raise CliError(f"no new version of {key!r} was made: {e}") from None
    if output_format is Format.JSON:
        print_json({"key": key, "version": version})
    else:
        print(f"made version {version} of key {key}")
