"""A node's own settings as texts, from a file and `KEY=VALUE` arguments; the arguments win.

The file is a properties file as Kafka's `server.properties` if its name ends with `.properties`,
and TOML otherwise. In TOML, keys are the settings' dotted names; nested tables flatten to them, so
that `[log]` with `dir = "x"` and `"log.dir" = "x"` are the same. Values may be TOML numbers,
booleans and arrays; they become the texts that the table parses. Reads the one file it is given;
nothing is checked here but the form. Who checks the settings has `Loaded.place` say in which line
of a properties file the one that was refused stands.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.config.properties import entries
from penstock.config.table import ConfigError, value_text


@dataclass(slots=True)
class Loaded:
    """Settings by name, and the lines in which those of a properties file stand."""

    texts: dict[str, str] = field(default_factory=dict)
    file: Path | None = None
    lines: dict[str, int] = field(default_factory=dict)

    def place(self, error: ConfigError) -> str:
        """`FILE, line N: ` of the setting that the error names first; nothing if it has no line."""
        sentence = str(error)
        found = []
        for name, line in self.lines.items():
            at = re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", sentence)
            if at is not None:
                found.append((at.start(), line))
        return f"{self.file}, line {min(found)[1]}: " if found else ""


def load_settings(file: Path | None = None, arguments: Iterable[str] = ()) -> dict[str, str]:
    """The settings of `file` under those of `arguments`."""
    return load(file, arguments).texts


def load(file: Path | None = None, arguments: Iterable[str] = ()) -> Loaded:
    """As `load_settings`, with where each of them stands."""
    if file is None:
        loaded = Loaded()
    elif file.suffix == ".properties":
        loaded = read_properties(file)
    else:
        loaded = Loaded(read_toml(file), file)
    for name, text in map(_argument, arguments):
        loaded.texts[name] = text
        loaded.lines.pop(name, None)
    return loaded


def read_properties(file: Path) -> Loaded:
    """A key that stands twice counts as it stands last, as in Kafka."""
    loaded = Loaded(file=file)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"the settings file {file} cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(
            f"the settings file {file} is no text in UTF-8: write key=value lines"
        ) from e
    for line, name, value in entries(text):
        loaded.texts[name] = value
        loaded.lines[name] = line
    return loaded


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
