"""Who asks, and from where: what every call of a service names.

A principal is Kafka's `Type:name` with the address it came from, since rules may name a host. It is
made once for a connection, when that is authenticated, and never changes: who authenticates again
must be the same.
"""

from __future__ import annotations

from typing import Final

USER: Final = "User"
ROLE: Final = "Role"


class Principal:
    """Equal by its fields."""

    __slots__ = ("host", "key", "name", "roles", "text", "token_authenticated", "type")

    def __init__(
        self,
        kind: str,
        name: str,
        host: str = "",
        *,
        token_authenticated: bool = False,
        roles: frozenset[str] = frozenset(),
    ) -> None:
        """`roles`: names of roles that its credential grants, beside those it is a member of."""
        self.type = kind
        self.name = name
        self.text = f"{kind}:{name}"
        self.host = host
        self.token_authenticated = token_authenticated
        """By a delegation token, with which no token may be asked for."""
        self.roles = roles
        self.key = repr((kind, name, host, token_authenticated, sorted(roles)))
        """All fields in one text, whose hash Python keeps: rights are looked up by it."""

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Principal) and self.key == other.key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Principal({self.text!r}, {self.host!r})"


ANONYMOUS_NAME: Final = "ANONYMOUS"
NOBODY: Final = Principal("", "")
"""Before it is known who somebody is."""


def anonymous(host: str) -> Principal:
    return Principal(USER, ANONYMOUS_NAME, host)
