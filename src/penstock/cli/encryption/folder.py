"""A node's folder and its keys, as its settings name them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import PenstockError
from penstock.cli.errors import CliError, usage_error
from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.load import Loaded, load
from penstock.config.table import ConfigError
from penstock.keys.data_keys import DataKeys
from penstock.keys.providers import data_keys
from penstock.log.manager import parse_log_dir

ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="The node's settings, as for penstock serve."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, above the file; may be repeated."),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="The node's data folder (log.dirs)."),
]


def node_config(
    config: str | None, settings: list[str] | None, data_dir: str | None = None
) -> BrokerConfig:
    """The settings of the node."""
    given = [] if data_dir is None else [f"log.dirs={data_dir}"]
    loaded = Loaded()
    try:
        loaded = load(None if config is None else Path(config), given + (settings or []))
        return broker_config(loaded.texts)
    except ConfigError as e:
        raise usage_error(f"{loaded.place(e)}{e}") from None


def keys_of(config: BrokerConfig) -> DataKeys:
    """The keys of the node; there must be a provider."""
    if not config.penstock_encryption_provider:
        raise usage_error(
            "the settings name no provider of keys: give them with --config FILE, or --set "
            "penstock.encryption.provider=..."
        )
    try:
        return data_keys(config)
    except ConfigError as e:
        raise usage_error(str(e)) from None
    except PenstockError as e:
        raise CliError(str(e)) from None


def partition_dirs(data_dir: str) -> list[str]:
    """The folders of partitions in a data folder."""
    try:
        names = sorted(os.listdir(data_dir))
    except OSError as e:
        raise CliError(f"{data_dir} cannot be read: {e.strerror}") from None
    return [os.path.join(data_dir, name) for name in names if parse_log_dir(name) is not None]
