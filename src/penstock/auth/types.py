"""The words of ACLs, numbered as Kafka's protocol and records number them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class _Code(IntEnum):
    """A number of the protocol; one that a newer Kafka may know is UNKNOWN (0) here."""

    @classmethod
    def _missing_(cls, value: object) -> _Code | None:
        return cls(0) if isinstance(value, int) else None


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: every pattern that would apply to the name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type CLUSTER."""
WILDCARD: Final = "*"
"""As a literal resource name: every one; as a host: every one."""
WILDCARD_PRINCIPAL: Final = "User:*"


class Acl(NamedTuple):
    """One rule."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """`Type:name`."""
    host: str
    operation: Operation
    permission: PermissionType
