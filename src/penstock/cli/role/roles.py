"""The requests about roles, to any node of a Penstock cluster, and their refusals as sentences.

Apache Kafka has no roles: it does not serve these requests, and that is said. What was changed is
seen a moment later by the node that lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, reason
from penstock.cli.errors import CliError
from penstock.wire.messages.alter_role import AlterRoleRequest, AlterRoleResponse, RoleAction
from penstock.wire.messages.describe_roles import DescribeRolesRequest, DescribeRolesResponse

RoleName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the role.")]
Members = Annotated[
    list[str], typer.Argument(metavar="TYPE:NAME", help="Principals, such as User:ann.")
]


def read(brokers: Brokers, names: Iterable[str] | None = None) -> dict[str, list[str]]:
    """The members of the named roles, or of all; a role that is not there is left out."""
    request = DescribeRolesRequest(names=None if names is None else list(names))
    answer = brokers.ask(request, DescribeRolesResponse, "list the roles")
    _check(answer.error_code, answer.error_message, "list the roles", "DESCRIBE")
    return {role.name: role.members for role in answer.roles}


def alter(
    brokers: Brokers, action: RoleAction, name: str, members: Sequence[str], doing: str
) -> None:
    request = AlterRoleRequest(name=name, action=action, members=list(members))
    answer = brokers.ask(request, AlterRoleResponse, doing)
    _check(answer.error_code, answer.error_message, doing, "ALTER")


def missing(name: str) -> CliError:
    return CliError(f"there is no role {name}; see `penstock role list`")


def _check(code: int, message: str | None, doing: str, operation: str) -> None:
    if not code:
        return
    text = f"cannot {doing}: {reason(code, message)}"
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text += f"; that needs {operation} on the cluster"
    raise CliError(text)
