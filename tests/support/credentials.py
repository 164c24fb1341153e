"""Credentials in memory, for the machines of `auth`."""

from __future__ import annotations

from functools import cache, partial

from penstock.auth.mechanism import TokenCredential
from penstock.auth.scram import HASHES, ITERATIONS_MIN, ScramCredential, credential_of

SECRET = b"a secret of the node"
SALT = b"1abcdefghijklmnopqrstuvwxy"


@cache
def credential(
    mechanism: str, password: str, salt: bytes = SALT, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    return credential_of(HASHES[mechanism], password.encode(), salt, iterations)


class Store:
    """Users by mechanism and name; `look`: the pattern for users that do not exist."""

    def __init__(self, **passwords: str) -> None:
        self.users = {
            (mechanism, name): credential(mechanism, password)
            for mechanism in HASHES
            for name, password in passwords.items()
        }
        self.tokens: dict[tuple[str, str], TokenCredential] = {}
        self.look: ScramCredential | None = None

    def add_token(self, token_id: str, password: str, owner: str, expires_at_ms: int) -> None:
        for mechanism in HASHES:
            made = TokenCredential(partial(credential, mechanism, password), owner, expires_at_ms)
            self.tokens[mechanism, token_id] = made

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.users.get((mechanism, user))

    def token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return self.tokens.get((mechanism, token_id))

    def pattern(self, mechanism: str) -> ScramCredential | None:
        return self.look
