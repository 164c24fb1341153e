"""Properties files, as Kafka's own tools read them (`--command-config`).

`key=value`, also with `:` or blanks between; lines that begin with # or ! are comments; a backslash
at a line's end goes on in the next line without its indentation, and elsewhere it escapes what
follows. A value keeps its blanks at the end. A key that stands twice counts as it stands last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_ENTRY = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_OPEN_END = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
"""An odd number of backslashes at the end."""


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a file."""
    found = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        if match is not None:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        if _OPEN_END.search(line):
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, character = match.groups()
        return chr(int(code, 16)) if code else _NAMED.get(character, character)

    return _ESCAPED.sub(plain, text)
