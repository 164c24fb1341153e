"""What `penstock serve` does, without typer: a node has to be ready in a second and stay
small.

A plain command line (known options with their values) is understood here; anything else
(`--help`, a typo, a missing value) is left to the full command line, which knows how to
answer it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.cli.errors import usage_error
from penstock.config.broker_config import broker_config
from penstock.config.load import Loaded, load
from penstock.config.table import ConfigError


@dataclass(slots=True)
class ServeOptions:
    """The options of `penstock serve`; None where the settings decide."""

    data_dir: str | None = None
    listen: list[str] = field(default_factory=list)
    http: str | None = None
    config: str | None = None
    settings: list[str] = field(default_factory=list)


_ONCE = {"--data-dir": "data_dir", "--http": "http", "--config": "config"}
_REPEATED = {"--listen": "listen", "--set": "settings"}


def parse_plain(argv: list[str]) -> ServeOptions | None:
    """The options in `argv` (after `serve`), or None when it is not plain."""
    options = ServeOptions()
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                return None
        if name in _ONCE:
            setattr(options, _ONCE[name], value)
        elif name in _REPEATED:
            getattr(options, _REPEATED[name]).append(value)
        else:
            return None
    return options


def serve_node(options: ServeOptions) -> int:
    """Run a node until a signal ends it; its exit code."""
    arguments = [] if options.data_dir is None else [f"log.dirs={options.data_dir}"]
    if options.listen:
        arguments.append(f"listeners={_listeners(options.listen)}")
    if options.http is not None:
        arguments.append(f"penstock.http.listen={options.http}")
    file = None if options.config is None else Path(options.config)
    loaded = Loaded()
    try:
        loaded = load(file, arguments + options.settings)
        config = broker_config(loaded.texts)
    except ConfigError as e:
        raise usage_error(f"{loaded.place(e)}{e}") from None
    from penstock.node.main import run

    return run(config)


def _listeners(addresses: list[str]) -> str:
    """HOST:PORT as Kafka's listeners; one with a name of its own (NAME://HOST:PORT) keeps it."""
    named = []
    for number, address in enumerate(addresses):
        name = "PLAINTEXT" if number == 0 else f"PLAINTEXT{number + 1}"
        named.append(address if "://" in address else f"{name}://{address}")
    return ",".join(named)
