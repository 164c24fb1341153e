"""What cannot be created or deleted; what Kafka says to it is in `test_kafka_agrees.py`."""

from __future__ import annotations

import pytest

from penstock.auth.acl_rules import INVALID_ACL, acl_fault, filter_fault
from penstock.auth.acls import AclFilter
from penstock.auth.types import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.base.errors import ErrorCode
from unit.auth.model import GOOD


def test_the_names_of_resources() -> None:
    assert acl_fault(GOOD) is None
    assert acl_fault(GOOD._replace(resource_name="")) == "Invalid empty resource name"
    cluster = GOOD._replace(resource_type=ResourceType.CLUSTER)
    only = "The only valid name for the CLUSTER resource is kafka-cluster"
    assert acl_fault(cluster) == only
    assert acl_fault(cluster._replace(resource_name="*")) == only
    assert acl_fault(cluster._replace(resource_name=CLUSTER_NAME)) is None
    assert INVALID_ACL is ErrorCode.INVALID_REQUEST


def test_an_operation_that_the_type_has_not_is_kept() -> None:
    token = GOOD._replace(resource_type=ResourceType.USER, operation=Operation.CLUSTER_ACTION)
    assert acl_fault(token) is None


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        (AclFilter(), None),
        (AclFilter(resource_name="a", pattern_type=PatternType.MATCH), None),
        (AclFilter(resource_type=ResourceType(99)), "Unknown patternFilter."),
        (AclFilter(pattern_type=PatternType(-1)), "Unknown patternFilter."),
        (AclFilter(operation=Operation(16)), "Unknown entryFilter."),
        (AclFilter(permission=PermissionType(0)), "Unknown entryFilter."),
    ],
)
def test_filters_with_what_nobody_knows_are_refused(wanted: AclFilter, fault: str | None) -> None:
    assert filter_fault(wanted) == fault
