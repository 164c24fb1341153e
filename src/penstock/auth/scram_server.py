"""The server's machine of SCRAM, and the credentials it makes up for users that do not exist.

Duty: one login by SCRAM-SHA-256 or SCRAM-SHA-512, of a user or, by the extension `tokenauth=true`,
with a delegation token.

Invariants: the nonce is fresh for each login and comes back in the final message (CVE-2024-56128),
which must repeat the header of the first; proofs are compared in constant time (CVE-2021-38153).
Whether a user exists is not to be learnt: for an unknown one the same steps are taken with a
credential that is made up from the name and a secret of the node, always the same for the same
name, and the login fails at its end like one with a wrong password. Kafka fails it at once. What
is left to tell them apart: a user whose iterations or salt are not like the pattern's (`look`).

No loop, no clock; the nonce is handed in. A step is a few hashes; only the credential of a token
that exists is handed out as work. Others can be told apart by that: ids cannot be guessed.
"""

from __future__ import annotations

import hmac
from typing import Final

from penstock.auth import scram
from penstock.auth.mechanism import (
    Challenge,
    Credentials,
    Done,
    Failed,
    Outcome,
    TokenCredential,
    Work,
)
from penstock.auth.scram import ClientFirst, ScramCredential, ScramError

KAFKA_SALT_BITS: Final = 130
"""Kafka's tools write a number of so many bits in base 36."""
SECRET_BYTES_MIN: Final = 16
OTHER_AUTHORIZATION_ID: Final = "Authentication failed: the authorization id is not the user's name"
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def look(credential: ScramCredential) -> tuple[int, int]:
    """What a client sees of a credential but its salt: the iterations, and how long the salt is; 0
    for one as Kafka's tools make it.
    """
    kafkas = not credential.salt.strip(_DIGITS)
    return credential.iterations, 0 if kafkas else len(credential.salt)


class MadeUpCredentials:
    """Credentials that nobody has the password of."""

    def __init__(self, secret: bytes) -> None:
        """`secret` belongs to this node, stays the same over restarts, and has at least
        `SECRET_BYTES_MIN` bytes.
        """
        if len(secret) < SECRET_BYTES_MIN:
            raise ValueError(f"the secret has fewer than {SECRET_BYTES_MIN} bytes")
        self._secret = secret

    def credential(
        self, hash_name: str, name: str, pattern: ScramCredential | None
    ) -> ScramCredential:
        """One for the name whose salt and iterations look like the pattern's."""
        iterations, salt_bytes = (scram.ITERATIONS_MIN, 0) if pattern is None else look(pattern)
        if salt_bytes:
            salt = self._bytes(hash_name, name, salt_bytes)
        else:
            salt = _base36(self._bytes(hash_name, name, KAFKA_SALT_BITS // 8 + 1))
        return ScramCredential(
            salt,
            hmac.digest(self._secret, f"stored {name}".encode(), hash_name),
            hmac.digest(self._secret, f"server {name}".encode(), hash_name),
            iterations,
        )

    def _bytes(self, hash_name: str, name: str, size: int) -> bytes:
        made = b""
        while len(made) < size:
            made += hmac.digest(self._secret, f"salt {len(made)} {name}".encode(), hash_name)
        return made[:size]


def _base36(data: bytes) -> bytes:
    number = int.from_bytes(data) % (1 << KAFKA_SALT_BITS)
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


class ScramServer:
    """One login. `nonce`: fresh, printable, without a comma."""

    def __init__(
        self, mechanism: str, nonce: str, credentials: Credentials, made_up: MadeUpCredentials
    ) -> None:
        self._mechanism = mechanism
        self._hash = scram.HASHES[mechanism]
        self._nonce = nonce
        self._credentials = credentials
        self._made_up = made_up
        self._token: tuple[ClientFirst, TokenCredential] | None = None
        """What work is under way for."""
        self._login: _Login | None = None
        self._over = False

    @property
    def claimed(self) -> str:
        return "" if self._login is None else self._login.first.name

    def step(self, message: bytes, now_ms: int) -> Outcome | Work:
        if self._over:
            return Failed("the login is over")
        try:
            if self._login is None:
                return self._first(scram.parse_client_first(message), now_ms)
            self._over = True  # a nonce is good for one proof
            return self._final(self._login, message)
        except ScramError as e:
            self._over = True
            return Failed(f"the client sent no message of SCRAM: {e}")

    def resume(self, result: object, now_ms: int) -> Outcome:
        if self._token is None or not isinstance(result, ScramCredential):
            return Failed("no work was handed out")
        first, token = self._token
        done = Done(token.owner, b"", token.expires_at_ms, token_authenticated=True)
        return self._ask(first, result, done)

    def _first(self, first: ClientFirst, now_ms: int) -> Outcome | Work:
        if first.authorization_id not in ("", first.name):
            return Failed("another authorization id", OTHER_AUTHORIZATION_ID)
        made_up = self._made_up.credential(
            self._hash, first.name, self._credentials.pattern(self._mechanism)
        )
        found = None
        if first.token:
            token = self._credentials.token(self._mechanism, first.name)
            if token is not None and token.expires_at_ms > now_ms:
                self._token = first, token
                return Work(token.derive)
        else:
            found = _strong(self._credentials.scram(self._mechanism, first.name))
        if found is None:
            return self._ask(first, made_up, None)
        return self._ask(first, found, Done(first.name))

    def _ask(self, first: ClientFirst, credential: ScramCredential, done: Done | None) -> Outcome:
        asked = scram.server_first(
            first.nonce + self._nonce, credential.salt, credential.iterations
        )
        self._login = _Login(first, asked, credential, done)
        return Challenge(asked.encode())

    def _final(self, login: _Login, message: bytes) -> Outcome:
        final = scram.parse_client_final(message)
        if final.header != login.first.header.encode():
            return Failed("the header of the final message is not that of the first")
        if not hmac.compare_digest(
            final.nonce.encode(), (login.first.nonce + self._nonce).encode()
        ):
            return Failed("the nonce of the final message is another")
        signed = scram.auth_message(login.first.bare, login.asked, final.bare)
        right = scram.proves(self._hash, login.credential.stored_key, signed, final.proof)
        shown = scram.server_signature(self._hash, login.credential.server_key, signed)
        if not right or login.done is None:
            return Failed("the user is unknown or the password is wrong")
        return Done(
            login.done.name,
            f"v={scram.encoded(shown)}".encode(),
            login.done.expires_at_ms,
            login.done.token_authenticated,
        )


class _Login:
    """What is known after the first message; `done` is None for a user that does not exist."""

    __slots__ = ("asked", "credential", "done", "first")

    def __init__(
        self, first: ClientFirst, asked: str, credential: ScramCredential, done: Done | None
    ) -> None:
        self.first = first
        self.asked = asked
        self.credential = credential
        self.done = done


def _strong(credential: ScramCredential | None) -> ScramCredential | None:
    """With too few iterations whoever listens could find the password: as if it was not there."""
    if credential is None or credential.iterations < scram.ITERATIONS_MIN:
        return None
    return credential
