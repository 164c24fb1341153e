"""Logins as Java writes them: JAAS, of which Kafka's settings hold one entry each.

Duty: the text of `sasl.jaas.config` to its options, for clients, and for brokers the passwords of
PLAIN that it may hold (`user_alice="..."`).

Invariants: no class is loaded and no control flag has an effect. An error is a `ValueError` that
shows nothing of the text; options are in no `repr`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "PlainLoginModule"
USER_PREFIX: Final = "user_"

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)"""
    r"""|(?P<sign>[=;])|(?P<word>[^\s="';]+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class Login(NamedTuple):
    """One entry of a JAAS configuration."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Login({self.module!r}, ...)"


def parse_jaas(text: str) -> Login:
    """`org.apache...PlainLoginModule required username="a" password="b";`; errors are `ValueError`
    and show nothing of the text.
    """
    tokens = _tokens(text)
    ends = [place for place, (token, quoted) in enumerate(tokens) if token == ";" and not quoted]
    if not ends:
        raise ValueError("it does not end with a semicolon")
    if ends[0] != len(tokens) - 1:
        raise ValueError("it has more than one login module")
    words = [token for token, _ in tokens[:-1]]
    if len(words) < 2:
        raise ValueError("it has no login module and control flag")
    options = words[2:]
    names, signs, values = options[::3], options[1::3], options[2::3]
    if set(signs) - {"="} or len(names) != len(values):
        raise ValueError('its options are not all of the form name="value"')
    return Login(words[0], dict(zip(names, values, strict=True)))


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words, signs and quoted texts, and whether each was quoted."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"character {at + 1} of it cannot be read: is a quote open?")
        if match["quote"]:
            found.append((_ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]), match["text"]), True))
        elif bare := match["sign"] or match["word"]:
            found.append((bare, False))
        at = match.end()
    return found


def plain_users(text: str) -> dict[str, str]:
    """Names and passwords that a broker takes by PLAIN, as its own settings give them."""
    login = parse_jaas(text)
    if login.module.rpartition(".")[2] != PLAIN_MODULE:
        raise ValueError(f"it does not name the login module {PLAIN_MODULE}")
    found = {
        name.removeprefix(USER_PREFIX): password
        for name, password in login.options.items()
        if name.startswith(USER_PREFIX)
    }
    if not all(name and password for name, password in found.items()):
        raise ValueError(f"one of its options {USER_PREFIX}... has no name or no password")
    return found
