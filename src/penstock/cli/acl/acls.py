"""The requests about ACLs, to any broker of any Kafka cluster, and their refusals as sentences.

What was created or deleted is seen a moment later by the broker that lists it. Limit:
`DELETED_AT_ONCE_MAX` ACLs in one request to delete; Kafka decides a request as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.auth.acls import AclFilter
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, reason
from penstock.cli.errors import CliError
from penstock.wire.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

DELETED_AT_ONCE_MAX = 1_000
_LIST, _CREATE, _DELETE = "list the ACLs", "create ACLs", "delete ACLs"
_NEEDED = {_LIST: "DESCRIBE", _CREATE: "ALTER", _DELETE: "ALTER"}
"""The operation on the cluster that each of them needs."""


class NoAuthorizer(CliError):
    """The brokers keep no ACLs, and ask none."""


class Created(NamedTuple):
    acls: list[Acl]
    refusals: list[str]
    """Why the others were not."""


def read(brokers: Brokers, filters: Iterable[AclFilter]) -> list[Acl]:
    """What one of the filters matches, each once, in order."""
    found: set[Acl] = set()
    for wanted in filters:
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        answer = brokers.ask(request, DescribeAclsResponse, _LIST)
        _check(answer.error_code, answer.error_message, _LIST)
        found.update(_described(answer))
    return sorted(found)


def _described(answer: DescribeAclsResponse) -> Iterator[Acl]:
    for resource in answer.resources:
        for acl in resource.acls:
            yield Acl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                acl.principal,
                acl.host,
                Operation(acl.operation),
                PermissionType(acl.permission_type),
            )


def create(brokers: Brokers, acls: Sequence[Acl]) -> Created:
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    answer = brokers.ask(request, CreateAclsResponse, _CREATE)
    created, refusals = [], []
    for acl, result in zip(acls, answer.results, strict=True):
        if result.error_code:
            refusals.append(_refusal(result.error_code, result.error_message, _CREATE).sentence)
        else:
            created.append(acl)
    return Created(created, list(dict.fromkeys(refusals)))


def delete(brokers: Brokers, acls: Sequence[Acl]) -> list[Acl]:
    """Deletes these very ACLs; returns those that were still there."""
    deleted = []
    for start in range(0, len(acls), DELETED_AT_ONCE_MAX):
        request = DeleteAclsRequest(
            filters=[_only(acl) for acl in acls[start : start + DELETED_AT_ONCE_MAX]]
        )
        answer = brokers.ask(request, DeleteAclsResponse, _DELETE)
        for result in answer.filter_results:
            _check(result.error_code, result.error_message, _DELETE)
            for match in result.matching_acls:
                _check(match.error_code, match.error_message, _DELETE)
                deleted.append(_matched(match))
    return sorted(deleted)


def _only(acl: Acl) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _matched(match: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        ResourceType(match.resource_type),
        match.resource_name,
        PatternType(match.pattern_type),
        match.principal,
        match.host,
        Operation(match.operation),
        PermissionType(match.permission_type),
    )


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise _refusal(code, message, doing)


def _refusal(code: int, message: str | None, doing: str) -> CliError:
    if code == ErrorCode.SECURITY_DISABLED:
        return NoAuthorizer(
            f"cannot {doing}: the cluster has no authorizer, so that everybody may do everything;"
            " set authorizer.class.name of its brokers and controllers"
        )
    text = f"cannot {doing}: {reason(code, message)}"
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return CliError(f"{text}; that needs {_NEEDED[doing]} on the cluster")
    return CliError(text)
