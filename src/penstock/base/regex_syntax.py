"""The syntax of RE2, as far as it means something for texts of a known alphabet, as a tree.

Supported: literals, `.`, classes, `|`, groups (plain, named, `?:`, flags i m s U), `*` `+` `?`
`{n}` `{n,}` `{n,m}` with or without `?`, `^` `$` `\\A` `\\z` `\\b` `\\B`, `\\d` `\\w` `\\s` and
their opposites, `\\Q..\\E`, hexadecimal escapes. Refused as in RE2: look-around, back-references,
possessive repetition, repetition of a repetition, more than 1,000 repetitions. Refused here only:
`\\p{..}` and `\\C`.
"""

from __future__ import annotations

import re
import string
from enum import Enum
from typing import NamedTuple, TypeAlias

TOPIC_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
WORD_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_")
REPETITIONS_MAX = 1_000
NESTING_MAX = 100

_COUNTS = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_GROUP_NAME = re.compile(r"\?P?<\w+>")
_FLAGS = re.compile(r"\?([imsU]*)(-[imsU]+)?([:)])")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_NAMED_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_SIMPLE_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class BadPattern(ValueError):
    """The pattern is refused; the text says why."""


class Place(Enum):
    """What holds at a place, without a character."""

    BEGIN = "begin"
    END = "end"
    BOUNDARY = "boundary"
    NO_BOUNDARY = "no boundary"


class Characters(NamedTuple):
    characters: frozenset[str]


class Sequence(NamedTuple):
    parts: list[Node]


class Alternation(NamedTuple):
    parts: list[Node]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None


Node: TypeAlias = "Place | Characters | Sequence | Alternation | Repeat"

_PLACES = {
    "A": Place.BEGIN,
    "z": Place.END,
    "b": Place.BOUNDARY,
    "B": Place.NO_BOUNDARY,
}


def parse(text: str, alphabet: frozenset[str]) -> Node:
    """The tree of a pattern over names that consist of `alphabet`; BadPattern for one that RE2
    would refuse.
    """
    parser = _Parser(text, alphabet)
    node = parser.alternation(depth=0)
    if parser.at < len(text):
        raise BadPattern("a parenthesis is closed that was not opened")
    return node


class _Parser:
    __slots__ = ("alphabet", "at", "fold", "text")

    def __init__(self, text: str, alphabet: frozenset[str]) -> None:
        self.text = text
        self.alphabet = alphabet
        self.at = 0
        self.fold = False

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def alternation(self, depth: int) -> Node:
        if depth > NESTING_MAX:
            raise BadPattern(f"it nests more than {NESTING_MAX} groups")
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self.at += 1
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Alternation(parts)

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self.text.startswith("\\Q", self.at):
                parts += self._quoted()
            else:
                parts.append(self._repeated(self._atom(depth)))
        return Sequence(parts)

    def _quoted(self) -> list[Node]:
        literal, _, _ = self.text[self.at + 2 :].partition("\\E")
        self.at = min(self.at + 2 + len(literal) + 2, len(self.text))
        return [self._literal(character) for character in literal]

    def _repeated(self, atom: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return atom
        if self._peek() == "?":  # laziness does not matter for a match of the whole
            self.at += 1
        if self._counts() is not None:
            raise BadPattern("a repetition is itself repeated")
        least, most = counts
        if max(least, most or 0) > REPETITIONS_MAX or (most is not None and most < least):
            raise BadPattern(f"the bounds of a repetition are not in 0..{REPETITIONS_MAX}")
        return Repeat(atom, least, most)

    def _counts(self) -> tuple[int, int | None] | None:
        """The repetition operator at this place, which is consumed; None if there is none."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._peek())
        if simple is not None:
            self.at += 1
            return simple
        match = _COUNTS.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        least = int(match[1])
        if match[2] is None:
            return least, least
        return least, int(match[3]) if match[3] else None

    def _atom(self, depth: int) -> Node:
        character = self._peek()
        if character in "*+?":
            raise BadPattern(f"`{character}` has nothing to repeat")
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._class()
        self.at += 1
        if character == "\\":
            return self._escape()
        if character == ".":
            return Characters(self.alphabet - {"\n"})
        if character in "^$":
            return Place.BEGIN if character == "^" else Place.END
        return self._literal(character)

    def _literal(self, character: str) -> Node:
        forms = {character, character.swapcase()} if self.fold else {character}
        return Characters(frozenset(forms))

    def _group(self, depth: int) -> Node:
        self.at += 1
        outer = self.fold
        name = _GROUP_NAME.match(self.text, self.at)
        flags = _FLAGS.match(self.text, self.at)
        if name is not None:
            self.at = name.end()
        elif flags is not None:
            self.at = flags.end()
            self.fold = (outer or "i" in flags[1]) and "i" not in (flags[2] or "")
            if flags[3] == ")":  # the flags hold to the end of the group around
                return Sequence([])
        elif self._peek() == "?":
            raise BadPattern("a group begins with `(?` and is none that RE2 knows")
        node = self.alternation(depth + 1)
        if self._peek() != ")":
            raise BadPattern("a parenthesis is not closed")
        self.at += 1
        self.fold = outer
        return node

    def _class(self) -> Node:
        start = self.at
        at = start + 1
        at += self.text.startswith("^", at)
        at += self.text.startswith("]", at)
        while at < len(self.text) and self.text[at] != "]":
            named = _NAMED_CLASS.match(self.text, at)
            if named is not None:
                at = named.end()
            else:
                at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text):
            raise BadPattern("a character class is not closed")
        self.at = at + 1
        return Characters(self._members(self.text[start : self.at], self.fold))

    def _escape(self) -> Node:
        character = self._peek()
        if character in _PLACES and character:
            self.at += 1
            return _PLACES[character]
        if character and character in "dDwWsS":
            self.at += 1
            return Characters(self._members("\\" + character, fold=False))
        match = _HEX.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
            code = int(match[1] or match[2], 16)
            if code > 0x10FFFF:
                raise BadPattern("a hexadecimal escape is beyond Unicode")
            return self._literal(chr(code))
        if not character or (character.isalnum() and character not in _SIMPLE_ESCAPES):
            raise BadPattern(f"the escape `\\{character}` is unknown")
        self.at += 1
        return self._literal(_SIMPLE_ESCAPES.get(character, character))

    def _members(self, text: str, fold: bool) -> frozenset[str]:
        """The characters of the alphabet in a class, by Python's own reading of it."""
        named = _NAMED_CLASS.sub(_posix, text)
        # `[`, `&`, `~` and `|` may one day mean set operations to Python; RE2 takes them as they
        # are.
        plain = re.sub(
            r"\\.|(?<!^)[\[&~|]", lambda m: m[0] if m[0][0] == "\\" else "\\" + m[0], named
        )
        try:
            one = re.compile(plain, re.ASCII | (re.IGNORECASE if fold else re.NOFLAG))
        except re.error as e:
            raise BadPattern(f"the character class `{text}` is broken ({e.msg})") from e
        return frozenset(c for c in self.alphabet if one.fullmatch(c))


def _posix(match: re.Match[str]) -> str:
    members = {
        "alnum": "a-zA-Z0-9",
        "alpha": "a-zA-Z",
        "digit": "0-9",
        "lower": "a-z",
        "upper": "A-Z",
        "punct": "!-/:-@\\[-`{-~",
        "word": "a-zA-Z0-9_",
        "xdigit": "0-9a-fA-F",
        "space": "\\s",
    }.get(match[2])
    if members is None or match[1]:
        raise BadPattern(f"the character class `{match[0]}` is unknown")
    return members
