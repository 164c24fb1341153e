"""Java's regular expressions in Python's syntax, or a sentence why not.

What both write alike and mean alike is taken over: literals, classes, groups, alternatives, greedy,
lazy and possessive repeats, look-around, references to groups. What they write or mean differently
is translated: `.`, `$`, `\\z`, `\\Z`, `\\Q..\\E`, names of groups; `\\d \\w \\s` and `(?i)` are of
ASCII alone, as in Java. Everything else is refused, so that no rule matches what Java would not:
classes within classes, `&&`, `\\p{..}`, `\\b` (two meanings in Java's own versions), other flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
ANY_CHARACTER: Final = f"[^{_LINE_ENDS}]"
"""Java's `.`."""
END: Final = rf"(?=(?:\r\n|[{_LINE_ENDS}])?\Z)"
"""Java's `$`: the end, or before a line's end that is the last thing."""

_SAME_ESCAPES: Final = frozenset("dDwWsStnrfaA")
_CLASS_ESCAPES: Final = frozenset("dDwWsStnrfa")
_OPENINGS: Final = ("?:", "?=", "?!", "?<=", "?<!", "?>", "?i:")
_NAMED: Final = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_REFERENCE: Final = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>")
_HEX: Final = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_REPEAT: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_SPECIAL_IN_CLASS: Final = ("[", "&&", "--")


def compile_java(pattern: str) -> re.Pattern[str]:
    """ValueError, with a sentence, for what cannot be translated or is no expression at all."""
    flags = re.ASCII
    body = pattern
    if pattern.startswith("(?i)"):
        flags |= re.IGNORECASE
        body = pattern[4:]
    translated = _Translation(body, pattern).run()
    try:
        return re.compile(translated, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the regular expression {pattern!r} is wrong: {error}") from None


class _Translation:
    """One pass over the text."""

    def __init__(self, text: str, whole: str) -> None:
        self._text = text
        self._whole = whole
        self._at = 0
        self._out: list[str] = []

    def run(self) -> str:
        parts: dict[str, Callable[[], None]] = {
            "\\": self._escape,
            "[": self._class,
            "(": self._open,
            "{": self._repeat,
            ".": lambda: self._write(1, ANY_CHARACTER),
            "$": lambda: self._write(1, END),
        }
        while self._at < len(self._text):
            character = self._text[self._at]
            part = parts.get(character)
            if part is None:
                self._write(1, character)
            else:
                part()
        return "".join(self._out)

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(f"the regular expression {self._whole!r} has {what}, not supported here")

    def _write(self, read: int, python: str) -> None:
        self._at += read
        self._out.append(python)

    def _rest(self) -> str:
        return self._text[self._at :]

    def _escape(self) -> None:
        rest = self._rest()[1:]
        if not rest:
            self._refuse("a backslash at its end")
        letter = rest[0]
        if letter == "Q":
            end = rest.find("\\E")
            quoted = rest[1:] if end < 0 else rest[1:end]
            self._write(2 + len(quoted) + (2 if end >= 0 else 0), re.escape(quoted))
        elif letter in "Zz":
            self._write(2, END if letter == "Z" else r"\Z")
        elif letter in "123456789":
            if rest[1:2].isdigit():
                self._refuse("a reference to a group that is followed by a digit")
            self._write(2, f"(?:\\{letter})")
        elif named := _REFERENCE.match(rest):
            self._write(1 + named.end(), f"(?P={named[1]})")
        else:
            self._plain_escape(rest, _SAME_ESCAPES)

    def _plain_escape(self, rest: str, known: frozenset[str]) -> None:
        """`rest` follows the backslash."""
        if number := _HEX.match(rest):
            self._write(1 + number.end(), "\\" + number[0])
        elif rest[0] in known:
            self._write(2, "\\" + rest[0])
        elif rest[0].isascii() and rest[0].isalnum():
            self._refuse(f"\\{rest[0]}")
        else:
            self._write(2, re.escape(rest[0]))

    def _open(self) -> None:
        rest = self._rest()[1:]
        if not rest.startswith("?"):
            self._write(1, "(")
        elif opening := next((o for o in _OPENINGS if rest.startswith(o)), None):
            self._write(1 + len(opening), "(" + opening)
        elif named := _NAMED.match(rest):
            self._write(1 + named.end(), f"(?P<{named[1]}>")
        else:
            self._refuse(f"({rest[:2]}")

    def _repeat(self) -> None:
        repeat = _REPEAT.match(self._rest())
        if repeat is None:
            self._refuse("a { that is not of a repeat")
        self._write(repeat.end(), repeat[0])

    def _class(self) -> None:
        self._write(1, "[")
        if self._rest().startswith("^"):
            self._write(1, "^")
        if self._rest().startswith("]"):
            self._refuse("a class that begins with ]")
        while not (rest := self._rest()).startswith("]"):
            if not rest:
                self._refuse("a class without its ]")
            if special := next((s for s in _SPECIAL_IN_CLASS if rest.startswith(s)), None):
                self._refuse(f"{special} in a class")
            if rest[0] == "\\":
                if len(rest) == 1:
                    self._refuse("a backslash at its end")
                self._plain_escape(rest[1:], _CLASS_ESCAPES)
            else:
                self._write(1, rest[0] if rest[0] == "-" else re.escape(rest[0]))
        self._write(1, "]")
