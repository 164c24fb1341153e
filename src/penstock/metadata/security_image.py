"""The part of the metadata that says who may do what: ACLs, SCRAM credentials, delegation tokens,
client quotas and roles.

Part of the `MetadataImage`, and changed in place with it, record by record; a record costs the same
however many there are. Values are immutable and replaced, so that copies are copies of the
dictionaries. What a record contradicts breaks an invariant. An ACL in words that this release does
not know stops the reader: what it forbids would be allowed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.auth.scram import ScramCredential
from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import InvariantBroken, invariant
from penstock.base.ids import Uuid, uuid_text
from penstock.metadata.delta import QuotaEntity, ScramKey, SecurityDelta
from penstock.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveRoleMemberRecord,
    RemoveRoleRecord,
    RemoveUserScramCredentialRecord,
    RoleMemberRecord,
    RoleRecord,
    SecurityRecord,
    UserScramCredentialRecord,
)

K = TypeVar("K")

Quotas: TypeAlias = Mapping[str, float]


class DelegationToken(NamedTuple):
    """Times are milliseconds since 1970; principals are `Type:name`."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    """After it the token cannot be used, however often it was renewed."""
    expiry_ms: int

    def expired(self, wall_ms: int) -> bool:
        return self.max_ms < wall_ms or self.expiry_ms < wall_ms

    def manageable_by(self, principal: str) -> bool:
        """Whether the principal may renew and expire it."""
        return principal == self.owner or principal in self.renewers


class FrozenSecurity(NamedTuple):
    """It as it was at one moment; nothing in it changes any more."""

    acls: Mapping[Uuid, Acl]
    scram: Mapping[ScramKey, ScramCredential]
    tokens: Mapping[str, DelegationToken]
    quotas: Mapping[QuotaEntity, Quotas]
    roles: Mapping[str, frozenset[str]]


class SecurityImage:
    __slots__ = ("acl_ids", "acls", "quotas", "roles", "scram", "tokens")

    def __init__(self) -> None:
        self.acls: dict[Uuid, Acl] = {}
        self.acl_ids: dict[Acl, Uuid] = {}
        """The other way round: no ACL is there twice."""
        self.scram: dict[ScramKey, ScramCredential] = {}
        self.tokens: dict[str, DelegationToken] = {}
        self.quotas: dict[QuotaEntity, Quotas] = {}
        self.roles: dict[str, frozenset[str]] = {}
        """The members of each role, as `Type:name`."""

    def frozen(self) -> FrozenSecurity:
        return FrozenSecurity(
            dict(self.acls),
            dict(self.scram),
            dict(self.tokens),
            dict(self.quotas),
            dict(self.roles),
        )

    def take(self, other: SecurityImage) -> None:
        """Becomes equal to `other`, and goes its own way from there."""
        self.acls = dict(other.acls)
        self.acl_ids = dict(other.acl_ids)
        self.scram = dict(other.scram)
        self.tokens = dict(other.tokens)
        self.quotas = dict(other.quotas)
        self.roles = dict(other.roles)

    def changes_to(self, other: SecurityImage) -> SecurityDelta:
        """What is different in `other`."""
        delta = SecurityDelta()
        for acl_id in different(self.acls, other.acls):
            if acl_id in self.acls:
                delta.acls_removed[acl_id] = self.acls[acl_id]
            if acl_id in other.acls:
                delta.acls_added[acl_id] = other.acls[acl_id]
        delta.scram |= different(self.scram, other.scram)
        delta.tokens |= different(self.tokens, other.tokens)
        delta.quotas |= different(self.quotas, other.quotas)
        delta.roles |= different(self.roles, other.roles)
        return delta

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecurityImage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def apply(self, record: SecurityRecord, delta: SecurityDelta) -> None:
        APPLY[type(record)](self, record, delta)

    def forget_roles(self, delta: SecurityDelta) -> None:
        """No record can say them at this level, so that a snapshot would lose them."""
        delta.roles |= self.roles.keys()
        self.roles.clear()

    def _apply_acl(self, record: AccessControlEntryRecord, delta: SecurityDelta) -> None:
        acl = acl_of(record)
        if 0 in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission):
            raise InvariantBroken(
                f"metadata has ACL {uuid_text(record.id)} in words that are not known here"
            )
        if record.id in self.acls or acl in self.acl_ids:
            raise InvariantBroken(f"metadata creates ACL {uuid_text(record.id)} twice")
        self.acls[record.id] = acl
        self.acl_ids[acl] = record.id
        delta.acls_added[record.id] = acl

    def _apply_remove_acl(
        self, record: RemoveAccessControlEntryRecord, delta: SecurityDelta
    ) -> None:
        acl = self.acls.pop(record.id, None)
        if acl is None:
            raise InvariantBroken(f"metadata removes a missing ACL {uuid_text(record.id)}")
        del self.acl_ids[acl]
        if delta.acls_added.pop(record.id, None) is None:
            delta.acls_removed[record.id] = acl

    def _apply_scram(self, record: UserScramCredentialRecord, delta: SecurityDelta) -> None:
        key = (record.mechanism, record.name)
        self.scram[key] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        delta.scram.add(key)

    def _apply_remove_scram(
        self, record: RemoveUserScramCredentialRecord, delta: SecurityDelta
    ) -> None:
        key = (record.mechanism, record.name)
        invariant(key in self.scram, f"metadata removes a missing credential of {record.name}")
        del self.scram[key]
        delta.scram.add(key)

    def _apply_token(self, record: DelegationTokenRecord, delta: SecurityDelta) -> None:
        self.tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )
        delta.tokens.add(record.token_id)

    def _apply_remove_token(
        self, record: RemoveDelegationTokenRecord, delta: SecurityDelta
    ) -> None:
        name = record.token_id
        invariant(name in self.tokens, f"metadata removes a missing delegation token {name}")
        del self.tokens[name]
        delta.tokens.add(name)

    def _apply_quota(self, record: ClientQuotaRecord, delta: SecurityDelta) -> None:
        entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
        quotas = dict(self.quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self.quotas[entity] = quotas
        else:
            self.quotas.pop(entity, None)
        delta.quotas.add(entity)

    def _apply_role(self, record: RoleRecord, delta: SecurityDelta) -> None:
        invariant(record.name not in self.roles, f"metadata creates role {record.name} twice")
        self.roles[record.name] = frozenset()
        delta.roles.add(record.name)

    def _apply_remove_role(self, record: RemoveRoleRecord, delta: SecurityDelta) -> None:
        self._members(record.name)
        del self.roles[record.name]
        delta.roles.add(record.name)

    def _apply_member(self, record: RoleMemberRecord, delta: SecurityDelta) -> None:
        self.roles[record.role] = self._members(record.role) | {record.member}
        delta.roles.add(record.role)

    def _apply_remove_member(self, record: RemoveRoleMemberRecord, delta: SecurityDelta) -> None:
        self.roles[record.role] = self._members(record.role) - {record.member}
        delta.roles.add(record.role)

    def _members(self, role: str) -> frozenset[str]:
        members = self.roles.get(role)
        if members is None:
            raise InvariantBroken(f"metadata speaks of a missing role {role}")
        return members


APPLY: Final[Mapping[type[Any], Callable[[SecurityImage, Any, SecurityDelta], None]]] = {
    AccessControlEntryRecord: SecurityImage._apply_acl,
    RemoveAccessControlEntryRecord: SecurityImage._apply_remove_acl,
    UserScramCredentialRecord: SecurityImage._apply_scram,
    RemoveUserScramCredentialRecord: SecurityImage._apply_remove_scram,
    DelegationTokenRecord: SecurityImage._apply_token,
    RemoveDelegationTokenRecord: SecurityImage._apply_remove_token,
    ClientQuotaRecord: SecurityImage._apply_quota,
    RoleRecord: SecurityImage._apply_role,
    RemoveRoleRecord: SecurityImage._apply_remove_role,
    RoleMemberRecord: SecurityImage._apply_member,
    RemoveRoleMemberRecord: SecurityImage._apply_remove_member,
}


def security_records(image: FrozenSecurity) -> Iterator[SecurityRecord]:
    """The fewest records that build an equal image, one after the other."""
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    for (mechanism, user), credential in image.scram.items():
        yield UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    for token in image.tokens.values():
        yield token_record(token)
    for entity, quotas in image.quotas.items():
        for key, value in quotas.items():
            yield quota_record(entity, key, value)
    for role, members in image.roles.items():
        yield RoleRecord(name=role)
        for member in sorted(members):
            yield RoleMemberRecord(role=role, member=member)


def acl_of(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        ResourceType(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        Operation(record.operation),
        PermissionType(record.permission_type),
    )


def acl_record(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.id,
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """None removes the quota."""
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value or 0.0,
        remove=value is None,
    )


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The parts in the one order in which they are kept."""
    return tuple(sorted(parts, key=lambda part: part[0]))


def different(old: Mapping[K, object], new: Mapping[K, object]) -> set[K]:
    """The keys whose values differ, or that only one of the two has."""
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
