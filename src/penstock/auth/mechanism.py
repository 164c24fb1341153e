"""What a SASL mechanism says to the connection that runs it.

A mechanism is a machine for one login. It is given the client's messages one by one and answers
each with a `Challenge`, `Done` or `Failed`. What takes long (hashing a password, verifying a
signature) it hands out as `Work`: the driver runs it in a thread and passes the result to `resume`.
While work is under way the machine is given nothing else.

Invariants: `Done` and `Failed` are final. `Failed.text` is shown to the client and tells nothing
about whether a user exists; `Failed.reason` is for the log of the node. Neither has a secret in it.
Work reads only what was given to it, so that any thread may run it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.auth.scram import ScramCredential


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on: the client is sent this, and answers."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The client is who it says it is."""

    name: str
    data: bytes = field(default=b"", repr=False)
    """The last message to the client."""
    expires_at_ms: int | None = None
    """When the credential ends, by the wall clock."""
    token_authenticated: bool = False
    """By a delegation token."""
    roles: frozenset[str] = frozenset()
    """Roles that the credential grants."""


@dataclass(frozen=True, slots=True)
class Failed:
    reason: str
    """For the log."""
    text: str | None = None
    """For the client; without one it is told that its credentials are invalid."""


@dataclass(frozen=True, slots=True)
class Work:
    """To be run beside the loop; what it returns or raises is the argument of `resume`."""

    run: Callable[[], object] = field(repr=False)


Outcome: TypeAlias = Challenge | Done | Failed


class Mechanism(Protocol):
    @property
    def claimed(self) -> str:
        """The name that the client gives, proven or not; empty while it has given none."""

    def step(self, message: bytes, now_ms: int) -> Outcome | Work:
        """The client's next message, at a time of the wall clock."""

    def resume(self, result: object, now_ms: int) -> Outcome:
        """What the work that `step` handed out has returned; an error that it raised never gets
        here, since it ends the login.
        """


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A delegation token, as the password of a login by SCRAM."""

    derive: Callable[[], ScramCredential] = field(repr=False)
    """Makes the credential; it takes long, so it is handed out as work."""
    owner: str
    """The name of the user for whom the token stands."""
    expires_at_ms: int


class Credentials(Protocol):
    """Where the credentials of users and delegation tokens are looked up."""

    def scram(self, mechanism: str, user: str) -> ScramCredential | None: ...

    def token(self, mechanism: str, token_id: str) -> TokenCredential | None: ...

    def pattern(self, mechanism: str) -> ScramCredential | None:
        """A credential that is like most, so that one that is made up for an unknown user looks the
        same; it should seldom be another one.
        """
