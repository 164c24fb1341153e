"""SASL as a client speaks it: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

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

import hmac
import re
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.auth import scram as formulas
from penstock.auth.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN

NONCE_BYTES: Final = 24
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
Exchange: TypeAlias = Generator[bytes, bytes, None]


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
        nonce = formulas.encoded(secrets.token_bytes(NONCE_BYTES))
        return scram(HASHES[self.mechanism], self.username, self.password, nonce)


def plain(username: str, password: str) -> Exchange:
    yield b"\0" + username.encode() + b"\0" + password.encode()


def scram(hash_name: str, username: str, password: str, nonce: str) -> Exchange:
    """`nonce` is the client's; it must be by chance, but for tests."""
    first = f"n={formulas.escaped(username)},r={nonce}"
    asked = yield b"n,," + first.encode()
    attributes = _attributes(asked)
    together = attributes.get("r", "")
    if not together.startswith(nonce) or len(together) == len(nonce):
        raise Refused("its nonce does not continue ours")
    salt, iterations = _salt(attributes), _iterations(attributes)
    salted = formulas.salted_password(hash_name, password.encode(), salt, iterations)
    final = f"c=biws,r={together}"  # biws is the header n,, in base64
    signed = formulas.auth_message(first, asked.decode(), final)
    proof = formulas.client_proof(hash_name, formulas.client_key(hash_name, salted), signed)
    shown = _attributes((yield f"{final},p={formulas.encoded(proof)}".encode()))
    if "e" in shown:
        raise Refused(shown["e"])
    server_key = formulas.keys(hash_name, salted).server_key
    theirs = formulas.server_signature(hash_name, server_key, signed)
    if not hmac.compare_digest(theirs, _decoded(shown.get("v", ""))):
        raise Refused("its signature is wrong: it does not know the password")


def _attributes(message: bytes) -> dict[str, str]:
    try:
        return dict(formulas.pairs(formulas.text_of(message)))
    except formulas.ScramError as e:
        raise Refused(str(e)) from None


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
        return formulas.decoded(text)
    except formulas.ScramError as e:
        raise Refused(str(e)) from None
