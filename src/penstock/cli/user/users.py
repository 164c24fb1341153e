"""The SCRAM credentials of users, through confluent-kafka's admin, on any Kafka cluster.

A password becomes a credential in librdkafka, on this machine: brokers never see it. What was
changed is seen a moment later by the broker that lists it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster

ITERATIONS_DEFAULT: Final = 8_192
_NEEDED: Final = "; that needs ALTER on the cluster, and DESCRIBE to list users"


class Mechanism(StrEnum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


_NUMBERS: Final = {
    Mechanism.SHA_256: ScramMechanism.SCRAM_SHA_256,
    Mechanism.SHA_512: ScramMechanism.SCRAM_SHA_512,
}
UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
UserNames = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of the users.")]
Mechanisms = Annotated[
    list[Mechanism] | None,
    typer.Option(
        "--mechanism",
        help="By which mechanism the user logs in; may be repeated. By default both.",
        case_sensitive=False,
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations",
        min=4_096,
        max=16_384,
        help="How often the password is hashed: more is slower for who guesses it, and for logins.",
    ),
]


class Users:
    """The users of one cluster that have a credential."""

    def __init__(self, access: Access) -> None:
        self._cluster = Cluster(access)
        self._admin = self._cluster.admin()

    def read(self) -> dict[str, dict[Mechanism, int]]:
        """The iterations of each user's credentials by mechanism, by name."""
        doing = "list the users"
        found = self._wait(self._admin.describe_user_scram_credentials(), doing)
        users = {}
        for name, described in sorted(found.items()):
            users[name] = {
                _mechanism(info.mechanism): int(info.iterations)
                for info in described.scram_credential_infos
            }
        return users

    def set(
        self, name: str, mechanisms: Sequence[Mechanism], password: bytes, iterations: int
    ) -> None:
        """One request for each: Kafka takes a user once in a request."""
        for mechanism in mechanisms:
            info = ScramCredentialInfo(_NUMBERS[mechanism], iterations)
            change = UserScramCredentialUpsertion(name, info, password)
            self._alter(change, f"set the password of {name}")

    def delete(self, name: str, mechanisms: Sequence[Mechanism]) -> None:
        for mechanism in mechanisms:
            change = UserScramCredentialDeletion(name, _NUMBERS[mechanism])
            self._alter(change, f"delete {name}")

    def _alter(self, change: Any, doing: str) -> None:
        for future in self._admin.alter_user_scram_credentials([change]).values():
            self._wait(future, doing)

    def _wait(self, future: Any, doing: str) -> Any:
        try:
            return self._cluster.wait(future, doing)
        except CliError as e:
            if "authorization" in e.sentence.lower():
                raise CliError(e.sentence + _NEEDED) from None
            raise


def _mechanism(number: ScramMechanism) -> Mechanism:
    return next(name for name, known in _NUMBERS.items() if known == number)


def missing(name: str) -> CliError:
    return CliError(f"there is no user {name} that has a password; see `penstock user list`")
