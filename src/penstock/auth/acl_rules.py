"""What makes an ACL or a filter of ACLs invalid, in Kafka's words; the code is INVALID_REQUEST.

As in Kafka, an operation is not held against the type of the resource: an ACL for what nobody asks
of it is kept and has no effect. Numbers beyond Kafka's are UNKNOWN (`auth/types.py`).
"""

from __future__ import annotations

from typing import Final

from penstock.auth.acls import AclFilter
from penstock.auth.types import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.base.errors import ErrorCode

INVALID_ACL: Final = ErrorCode.INVALID_REQUEST
"""The code that an ACL or a filter with a fault is answered with."""


def acl_fault(acl: Acl) -> str | None:
    """Why this ACL cannot be created, or None."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {acl.operation.name}"
    if acl.permission not in (PermissionType.DENY, PermissionType.ALLOW):
        return f"Invalid permissionType {acl.permission.name}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def filter_fault(wanted: AclFilter) -> str | None:
    """Why nothing can be deleted by this filter, or None."""
    if wanted.resource_type is ResourceType.UNKNOWN or wanted.pattern_type is PatternType.UNKNOWN:
        return "Unknown patternFilter."
    if wanted.operation is Operation.UNKNOWN or wanted.permission is PermissionType.UNKNOWN:
        return "Unknown entryFilter."
    return None
