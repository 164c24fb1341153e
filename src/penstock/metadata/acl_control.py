"""Decisions about ACLs: create, delete by filters; and which there are.

Each ACL of a request has an outcome of its own; what is there already, or in the request twice, is
no error. A deletion is carried out as a whole. A filter that can mean only one ACL is looked up,
any other is compared with all of them, in steps.
"""

from __future__ import annotations

from typing import Final

from penstock.auth.acl_rules import acl_fault, filter_fault
from penstock.auth.acls import AclFilter
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.base.steps import Steps
from penstock.metadata.records import MetadataRecord
from penstock.metadata.security_image import SecurityImage, acl_record
from penstock.metadata.security_records import RemoveAccessControlEntryRecord
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

RECORDS_PER_REQUEST_MAX: Final = 10_000
"""How many records one request of a client may lead to; Kafka's limit."""


def create_acls(
    security: SecurityImage, request: CreateAclsRequest, rng: Rng
) -> Steps[tuple[list[MetadataRecord], CreateAclsResponse]]:
    records: list[MetadataRecord] = []
    results = []
    new: set[Acl] = set()
    for number, creation in enumerate(request.creations, 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        acl = _created(creation)
        refused = acl_fault(acl)
        if refused is not None:
            results.append(
                AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=refused)
            )
            continue
        if acl not in security.acl_ids and acl not in new:
            if len(records) >= RECORDS_PER_REQUEST_MAX:
                raise too_many_records()
            new.add(acl)
            records.append(acl_record(rng.uuid(), acl))
        results.append(AclCreationResult(error_message=None))
    return records, CreateAclsResponse(results=results)


def too_many_records() -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
    )


def delete_acls(
    security: SecurityImage, request: DeleteAclsRequest
) -> Steps[tuple[list[MetadataRecord], DeleteAclsResponse]]:
    removed: set[Uuid] = set()
    results = []
    for number, given in enumerate(request.filters, 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        wanted = _filter(given)
        refused = filter_fault(wanted)
        if refused is not None:
            results.append(
                DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=refused)
            )
            continue
        found = yield from _matching(security, wanted)
        removed.update(acl_id for acl_id, _ in found)
        if len(removed) > RECORDS_PER_REQUEST_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete "
                "operation.",
            )
        matching = [_deleted(acl) for _, acl in found]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    records: list[MetadataRecord] = [
        RemoveAccessControlEntryRecord(id=acl_id) for acl_id in sorted(removed)
    ]
    return records, DeleteAclsResponse(filter_results=results)


def describe_acls(
    security: SecurityImage, request: DescribeAclsRequest
) -> Steps[DescribeAclsResponse]:
    """By resource pattern; those that there are when it begins."""
    wanted = _filter(request)
    refused = filter_fault(wanted)
    if refused is not None:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=refused)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for _, acl in (yield from _matching(security, wanted)):
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def _matching(security: SecurityImage, wanted: AclFilter) -> Steps[list[tuple[Uuid, Acl]]]:
    only = wanted.only()
    if only is not None:
        found = security.acl_ids.get(only)
        return [] if found is None else [(found, only)]
    matching = []
    for number, entry in enumerate(list(security.acls.items()), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        if wanted.matches(entry[1]):
            matching.append(entry)
    return matching


def _created(creation: AclCreation) -> Acl:
    return Acl(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        Operation(creation.operation),
        PermissionType(creation.permission_type),
    )


def _filter(given: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        ResourceType(given.resource_type_filter),
        given.resource_name_filter,
        PatternType(given.pattern_type_filter),
        given.principal_filter,
        given.host_filter,
        Operation(given.operation),
        PermissionType(given.permission_type),
    )


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
