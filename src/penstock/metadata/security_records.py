"""The metadata records of ACLs, SCRAM credentials, delegation tokens, client quotas and roles.

Those of Kafka have Kafka's types and versions. Roles are ours: their types begin at
`OWN_TYPES_FROM`, far from Kafka's, and they are written only at level 1 of `penstock.roles.version`
and only when somebody makes a role, so that without roles Apache's tools read every record.

A role is a record of its own, so that one without members and without ACLs can be listed, and a
misspelt name is found out. What it may do are ACLs of the principal `Role:name`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from penstock.base.ids import Uuid
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int32,
    int64,
    string,
    uuid,
)

OWN_TYPES_FROM: Final = 20_000
ROLES_VERSION: Final = "penstock.roles.version"
"""The feature at whose level 1 there are roles."""


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = binary("0+", secret=True)
    stored_key: bytes = binary("0+", secret=True)
    server_key: bytes = binary("0+", secret=True)
    iterations: int = int32("0+")


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    """A new token, or another expiry of one that is there."""

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    token_id: str = string("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class RoleMemberRecord(Message, api_key=OWN_TYPES_FROM, versions="0", flexible="0+"):
    """`member` is a principal, `Type:name`."""

    role: str = string("0+")
    member: str = string("0+")


class RemoveRoleMemberRecord(Message, api_key=OWN_TYPES_FROM + 1, versions="0", flexible="0+"):
    role: str = string("0+")
    member: str = string("0+")


class RoleRecord(Message, api_key=OWN_TYPES_FROM + 2, versions="0", flexible="0+"):
    name: str = string("0+")


class RemoveRoleRecord(Message, api_key=OWN_TYPES_FROM + 3, versions="0", flexible="0+"):
    """The role is gone, with all its members; its ACLs have records of their own."""

    name: str = string("0+")


SecurityRecord: TypeAlias = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | ClientQuotaRecord
    | RoleMemberRecord
    | RemoveRoleMemberRecord
    | RoleRecord
    | RemoveRoleRecord
)

WRITTEN_AT_FIRST: Final[dict[type[Message], int]] = {
    AccessControlEntryRecord: 0,
    RemoveAccessControlEntryRecord: 0,
    UserScramCredentialRecord: 0,
    RemoveUserScramCredentialRecord: 0,
    DelegationTokenRecord: 0,
    RemoveDelegationTokenRecord: 0,
    ClientQuotaRecord: 0,
    RoleMemberRecord: 0,
    RemoveRoleMemberRecord: 0,
    RoleRecord: 0,
    RemoveRoleRecord: 0,
}
"""The version that is written of each at the first level of metadata.version."""
