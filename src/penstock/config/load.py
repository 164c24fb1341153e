"""A node's own settings as texts, from a TOML file and `KEY=VALUE` arguments; the arguments win.

Keys are the settings' dotted names; nested tables flatten to them, so that `[log]` with `dir =
"x"` and `"log.dir" = "x"` are the same. Values may be TOML numbers, booleans and arrays; they
become the texts that the table parses. Reads the one file it is given; nothing is checked here
but the form.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.config.table import ConfigError, value_text


def load_settings(file: Path | None = None, arguments: Iterable[str] = ()) -> dict[str, str]:
    """The settings of `file` under those of `arguments`."""
    texts = {} if file is None else read_toml(file)
    texts.update(_argument(argument) for argument in arguments)
    return texts


def read_toml(file: Path) -> dict[str, str]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"the settings file {file} cannot be read: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"the settings file {file} is not TOML: {e}") from e
    texts: dict[str, str] = {}
    for name, text in _flatten("", tables):
        if name in texts:
            raise ConfigError(f"the settings file {file} sets {name} twice")
        texts[name] = text
    return texts


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(f"{name}.", value)
        else:
            yield name, _text(name, value)


def _text(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_text(name, item) for item in value)
    if isinstance(value, bool | int | float | str):
        return value_text(value) or ""
    raise ConfigError(
        f"{name} cannot be {value!s}: it must be a text, a number, a boolean or a list"
    )


def _argument(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"{argument!r} is not a setting: write KEY=VALUE, as num.partitions=3")
    return name.strip(), text
