"""Decisions about roles: make, delete, members in and out; and which there are.

A role is a name for a set of principals; what they may do are ACLs of the principal `Role:name`.
Roles are not members of roles. Who is a member already, or is none, is no error. A role that is
deleted takes its ACLs with it, so that one of the same name that comes later begins with nothing.
A decision is carried out as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.auth.principal import ROLE
from penstock.auth.types import WILDCARD
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps
from penstock.metadata.acl_control import RECORDS_PER_REQUEST_MAX, too_many_records
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import MetadataRecord
from penstock.metadata.security_image import SecurityImage
from penstock.metadata.security_records import (
    ROLES_VERSION,
    RemoveAccessControlEntryRecord,
    RemoveRoleMemberRecord,
    RemoveRoleRecord,
    RoleMemberRecord,
    RoleRecord,
)
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.wire.messages.describe_roles import (
    DescribedRole,
    DescribeRolesRequest,
    DescribeRolesResponse,
)

ROLE_NAME_CHARS_MAX: Final = 249
MEMBER_CHARS_MAX: Final = 1_024


def describe_roles(
    security: SecurityImage, request: DescribeRolesRequest
) -> Steps[DescribeRolesResponse]:
    """The named ones that there are, or all; as they are when it begins."""
    named = None if request.names is None else frozenset(request.names)
    found = []
    for number, (role, members) in enumerate(sorted(security.roles.items()), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        if named is None or role in named:
            found.append(DescribedRole(name=role, members=sorted(members)))
    return DescribeRolesResponse(error_message=None, roles=found)


def create_role(
    image: MetadataImage, name: str, members: Sequence[str] = ()
) -> list[MetadataRecord]:
    if not image.has_roles:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"there are no roles at this level of {ROLES_VERSION}: finalise level 1",
        )
    if not name or len(name) > ROLE_NAME_CHARS_MAX or not name.isprintable():
        raise _invalid(
            f"a role's name has 1 to {ROLE_NAME_CHARS_MAX} characters that can be printed"
        )
    if name in image.security.roles:
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"there is a role {name!r} already")
    return [RoleRecord(name=name), *_joining(name, members, frozenset())]


def delete_role(image: MetadataImage, name: str) -> list[MetadataRecord]:
    _members(image, name)
    principal = f"{ROLE}:{name}"
    acls: list[MetadataRecord] = [
        RemoveAccessControlEntryRecord(id=acl_id)
        for acl_id, acl in image.security.acls.items()
        if acl.principal == principal
    ]
    return _bounded([*acls, RemoveRoleRecord(name=name)])


def add_members(image: MetadataImage, name: str, members: Sequence[str]) -> list[MetadataRecord]:
    return _joining(name, members, _members(image, name))


def remove_members(image: MetadataImage, name: str, members: Iterable[str]) -> list[MetadataRecord]:
    present = _members(image, name)
    return _bounded(
        [
            RemoveRoleMemberRecord(role=name, member=member)
            for member in dict.fromkeys(members)
            if member in present
        ]
    )


def _joining(name: str, members: Iterable[str], present: frozenset[str]) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for member in dict.fromkeys(members):
        kind, colon, rest = member.partition(":")
        if not (kind and colon and rest) or len(member) > MEMBER_CHARS_MAX:
            raise _invalid(
                f"a member is a principal, User:name, of at most {MEMBER_CHARS_MAX} characters"
            )
        if kind == ROLE:
            raise _invalid(f"{member!r} cannot be a member: a role has no roles in it")
        if rest == WILDCARD:
            raise _invalid(f"{member!r} cannot be a member: members are named one by one")
        if member not in present:
            records.append(RoleMemberRecord(role=name, member=member))
    return _bounded(records)


def _members(image: MetadataImage, name: str) -> frozenset[str]:
    members = image.security.roles.get(name)
    if members is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no role {name!r}: make it first")
    return members


def _bounded(records: list[MetadataRecord]) -> list[MetadataRecord]:
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    return records


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
