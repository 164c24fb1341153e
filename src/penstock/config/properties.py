"""Properties files, as Kafka's server and its tools read them.

`key=value`, also with `:` or blanks between; lines that begin with # or ! are comments; a backslash
at a line's end goes on in the next line without its indentation, and elsewhere it escapes what
follows. A value keeps its blanks at the end. A key that stands twice counts as it stands last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_ESCAPES = {"\\": "\\\\"} | {character: f"\\{name}" for name, character in _NAMED.items()}
_ENTRY = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_OPEN_END = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
"""An odd number of backslashes at the end."""


class Entry(NamedTuple):
    """A key and its value; `line` is where the entry begins, from 1."""

    line: int
    key: str
    value: str


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a file."""
    return {entry.key: entry.value for entry in entries(text)}


def entries(text: str) -> Iterator[Entry]:
    """The entries as they stand in the file, with the lines where they begin."""
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        if match is not None:
            yield Entry(number, _unescaped(match[1]), _unescaped(match[2]))


def property_line(key: str, value: str) -> str:
    """The line from which `value` is read again; `key` is a setting's name."""
    escaped = "".join(_ESCAPES.get(character, character) for character in value)
    return f"{key}={escaped}\n" if escaped[:1] != " " else f"{key}=\\{escaped}\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, first = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        first = first if begun else number
        if _OPEN_END.search(line):
            begun += line[:-1]
            continue
        yield first, begun + line
        begun = ""
    if begun:
        yield first, begun


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, character = match.groups()
        return chr(int(code, 16)) if code else _NAMED.get(character, character)

    return _ESCAPED.sub(plain, text)
