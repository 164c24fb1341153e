"""SASL as a client speaks it: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677); and the logins that
Java's clients write as JAAS.

Duty: what is sent to a broker and what its answers must be. No socket: an exchange is a generator
that yields messages and is sent the broker's answers; it ends when the broker has shown all that it
has to show, and raises `Refused` when an answer is not what it must be.

Invariants: SCRAM ends only after the broker's signature was verified, so a broker that does not
know the password is found out. Names and passwords are their UTF-8 bytes, as Kafka takes them.
A password is in no `repr` and in no message of an error.

Limits: a broker may ask for `ITERATIONS_MIN` to `ITERATIONS_MAX` rounds of hashing; fewer would
give the password away, more would hold the client up.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
NONCE_BYTES: Final = 24
PLAIN: Final = "PLAIN"
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = (PLAIN, *HASHES)
Exchange: TypeAlias = Generator[bytes, bytes, None]

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\])*)(?P=quote)"""
    r"""|(?P<sign>[=;])|(?P<word>[^\s="';]+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class Refused(Exception):
    """The broker's part of an exchange is not what it must be."""


@dataclass(frozen=True)
class Sasl:
    """Who a connection belongs to, and how it shows it."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def exchange(self) -> Exchange:
        if self.mechanism == PLAIN:
            return plain(self.username, self.password)
        nonce = base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        return scram(HASHES[self.mechanism], self.username, self.password, nonce)


def plain(username: str, password: str) -> Exchange:
    yield b"\0" + username.encode() + b"\0" + password.encode()


def scram(hash_name: str, username: str, password: str, nonce: str) -> Exchange:
    """`nonce` is the client's; it must be by chance, but for tests."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    asked = yield b"n,," + first.encode()
    attributes = _attributes(asked)
    together = attributes.get("r", "")
    if not together.startswith(nonce) or len(together) == len(nonce):
        raise Refused("its nonce does not continue ours")
    salt, iterations = _salt(attributes), _iterations(attributes)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    final = f"c=biws,r={together}"  # biws is the header n,, in base64
    signed = ",".join((first, asked.decode(), final)).encode()
    key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, key).digest(), signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    shown = _attributes((yield f"{final},p={base64.b64encode(proof).decode()}".encode()))
    if "e" in shown:
        raise Refused(shown["e"])
    theirs = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    if not hmac.compare_digest(theirs, _decoded(shown.get("v", ""))):
        raise Refused("its signature is wrong: it does not know the password")


def _attributes(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise Refused("its message is no text") from None
    return {name: value for name, sign, value in (p.partition("=") for p in parts) if sign}


def _iterations(attributes: dict[str, str]) -> int:
    text = attributes.get("i", "")
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise Refused("it does not say how often to hash")
    if not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise Refused(f"{text} iterations are not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)


def _salt(attributes: dict[str, str]) -> bytes:
    found = _decoded(attributes.get("s", ""))
    if not found:
        raise Refused("it gives no salt")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused("its message is not in base64") from None


class Login(NamedTuple):
    """One entry of a JAAS configuration."""

    module: str
    options: dict[str, str]


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
