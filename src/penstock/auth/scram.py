"""SCRAM (RFC 5802, RFC 7677): the formulas and messages that server and client share.

Duty: what is computed from a password, and the text of the four messages. The machine of the server
is `scram_server`, that of a client `kafka/sasl.py`.

Invariants: names and passwords are their UTF-8 bytes, as Kafka takes them (no SASLprep). A message
is read only in the form in which it is signed: base64 has exactly one spelling, no attribute comes
twice, a mandatory extension (`m=`) that nobody here knows is an error. The header must be `n`: no
channel binding. Errors are `ScramError` and show nothing of the message.

Limits: `MESSAGE_BYTES_MAX` for a message, `NONCE_CHARS_MAX` for a nonce, `ITERATIONS_MIN` to
`ITERATIONS_CREATED_MAX` rounds of hashing for credentials that are created here, and up to
`ITERATIONS_MAX` for what a client accepts from a broker.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The name of the hash, by the name of the mechanism."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_CREATED_MAX: Final = 16_384
ITERATIONS_MAX: Final = 1_000_000
MESSAGE_BYTES_MAX: Final = 16_384
NONCE_CHARS_MAX: Final = 1024
TOKEN_EXTENSION: Final = "tokenauth"
"""`tokenauth=true`: the name is the id of a delegation token."""

_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_EXTENSION = re.compile(r"[A-Za-z]+")
_ESCAPE = re.compile(r"=(2C|3D)?")
_NO_BINDING = "n"


class ScramError(Exception):
    """A message that is not one of SCRAM's."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept of a password. Who reads it cannot log in, but can try passwords, and pose as
    the server.
    """

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class Keys(NamedTuple):
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys(...)"


def salted_password(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The one long computation; it lets other threads run."""
    return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", hash_name)


def keys(hash_name: str, salted: bytes) -> Keys:
    stored = hashlib.new(hash_name, client_key(hash_name, salted)).digest()
    return Keys(stored, hmac.digest(salted, b"Server Key", hash_name))


def credential_of(
    hash_name: str, password: bytes, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """A new credential; `ValueError` for a number of iterations that Kafka does not take."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_CREATED_MAX:
        raise ValueError(
            f"{iterations} iterations are not {ITERATIONS_MIN} to {ITERATIONS_CREATED_MAX}"
        )
    made = keys(hash_name, salted_password(hash_name, password, salt, iterations))
    return ScramCredential(salt, made.stored_key, made.server_key, iterations)


def auth_message(first_bare: str, server_first: str, final_bare: str) -> bytes:
    """What both sides sign."""
    return ",".join((first_bare, server_first, final_bare)).encode()


def client_proof(hash_name: str, key: bytes, signed: bytes) -> bytes:
    """`key` is the client's; the proof shows it to whoever has the stored key."""
    stored = hashlib.new(hash_name, key).digest()
    return _xor(key, hmac.digest(stored, signed, hash_name))


def proves(hash_name: str, stored_key: bytes, signed: bytes, proof: bytes) -> bool:
    """Whether the proof comes from one who knows the password. A proof of a wrong length is
    computed with like any other.
    """
    signature = hmac.digest(stored_key, signed, hash_name)
    shown = _xor(proof.ljust(len(signature), b"\0")[: len(signature)], signature)
    same = hmac.compare_digest(hashlib.new(hash_name, shown).digest(), stored_key)
    return same and len(proof) == len(signature)


def server_signature(hash_name: str, server_key: bytes, signed: bytes) -> bytes:
    return hmac.digest(server_key, signed, hash_name)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


class ClientFirst(NamedTuple):
    header: str
    """As it was sent; the final message must repeat it."""
    authorization_id: str
    name: str
    nonce: str
    token: bool
    """Whether the name is the id of a delegation token."""
    bare: str
    """What of it is signed."""


class ClientFinal(NamedTuple):
    header: bytes
    nonce: str
    proof: bytes
    bare: str

    def __repr__(self) -> str:
        return "ClientFinal(...)"


def parse_client_first(message: bytes) -> ClientFirst:
    parts = text_of(message).split(",", 2)
    if len(parts) != 3 or parts[0] != _NO_BINDING:
        raise ScramError("it does not begin with the header n,,")
    binding, who, bare = parts
    authorization_id = ""
    if who:
        if not who.startswith("a="):
            raise ScramError("its header has something else than an authorization id")
        authorization_id = unescaped(who[2:])
    found = pairs(bare)
    _check_order(found, ("n", "r"), ())
    extensions = dict(found[2:])
    return ClientFirst(
        f"{binding},{who},",
        authorization_id,
        unescaped(found[0][1]),
        _nonce(found[1][1]),
        extensions.get(TOKEN_EXTENSION, "").lower() == "true",
        bare,
    )


def parse_client_final(message: bytes) -> ClientFinal:
    text = text_of(message)
    found = pairs(text)
    _check_order(found, ("c", "r"), ("p",))
    return ClientFinal(
        decoded(found[0][1]),
        _nonce(found[1][1]),
        decoded(found[-1][1]),
        text.rpartition(",")[0],
    )


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={encoded(salt)},i={iterations}"


def text_of(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(f"its message has more than {MESSAGE_BYTES_MAX} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError("its message is no text") from None
    if "\0" in text:
        raise ScramError("its message has a NUL")
    return text


def pairs(text: str) -> list[tuple[str, str]]:
    """Names and values, in order; a part without `=` has an empty value. No name comes twice."""
    found = [(name, value) for name, _, value in (p.partition("=") for p in text.split(","))]
    if len({name for name, _ in found}) != len(found):
        raise ScramError("its message names one thing twice")
    return found


def _check_order(
    found: list[tuple[str, str]], first: tuple[str, ...], last: tuple[str, ...]
) -> None:
    """Those at the beginning and at the end are as they must be, what is between are extensions."""
    names = tuple(name for name, _ in found)
    end = len(names) - len(last)
    between = names[len(first) : end]
    if end < len(first) or names[: len(first)] != first or names[end:] != last:
        raise ScramError("its message does not have the attributes that it must have")
    if "m" in between or not _all_match(_EXTENSION, between):
        raise ScramError("its message asks for an extension that is not there")
    if not all(value for _, value in found):
        raise ScramError("its message has an empty value")


def _all_match(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    return all(pattern.fullmatch(text) for text in texts)


def _nonce(text: str) -> str:
    if len(text) > NONCE_CHARS_MAX or not _PRINTABLE.fullmatch(text):
        raise ScramError(f"its nonce is not 1 to {NONCE_CHARS_MAX} printable characters")
    return text


def escaped(name: str) -> str:
    """A name as it stands in a message: saslname of the RFC."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    if not text or any(not match[1] for match in _ESCAPE.finditer(text)):
        raise ScramError("its name is not written as SCRAM wants it")
    return text.replace("=2C", ",").replace("=3D", "=")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    """Only the one right spelling of the bytes in base64 is taken."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if encoded(data) != text:
        raise ScramError("its message is not in base64")
    return data
