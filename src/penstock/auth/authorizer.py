"""Who may do what: super users, ACLs and roles, with what was decided kept.

A super user may do everything, whatever the ACLs say. Everyone else is denied everything until the
ACLs have been loaded once, also where `allow.everyone.if.no.acl.found` is set: what is not there
yet may deny. Then `AclIndex` decides.

The operations that a principal is allowed on a resource are kept as one bit field, so that to be
allowed costs one look-up. Every change of ACLs or roles drops all that is kept. Limits:
`RIGHTS_CACHED_MAX` bit fields for a type of resource, after which all are dropped; none for names
of more than `NAME_CACHED_CHARS_MAX` characters, which only somebody with bad intentions uses.

Denied is logged as INFO, allowed as DEBUG, and what is only tried (`logged=False`) not at all.
Names are fields of the log line, cut to `NAME_LOGGED_CHARS_MAX`; its formatter escapes them.
Not thread-safe; the loop of the node owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.auth.acls import (
    DEFAULT_DENY,
    EVERY_OPERATION,
    SUPER_USER,
    AclFilter,
    AclIndex,
    Decision,
)
from penstock.auth.principal import ROLE, Principal
from penstock.auth.types import Acl, Operation, PatternType, ResourceType
from penstock.base.ids import Uuid

RIGHTS_CACHED_MAX = 32_768
NAME_CACHED_CHARS_MAX = 249
NAME_LOGGED_CHARS_MAX = 249

log = logging.getLogger("penstock.authorizer")

SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What is asked for of each type of resource, and shown in its authorized operations."""

_SUPPORTED_BITS: Final = {
    kind: sum(1 << operation for operation in operations)
    for kind, operations in SUPPORTED_OPERATIONS.items()
}


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of the setting `super.users`; ValueError if one is none."""
    users = frozenset(part.strip() for part in text.split(";")) - {""}
    for user in users:
        if ":" not in user:
            raise ValueError(
                f"super.users has {user!r}: write Type:name, as in User:alice;User:bob"
            )
    return users


class Authorizer:
    def __init__(
        self, super_users: frozenset[str], *, allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._acls = AclIndex(allow_everyone_if_no_acl_found=allow_everyone_if_no_acl_found)
        self._roles: dict[str, frozenset[str]] = {}
        self._loaded = False
        # By type: members of an enumeration take long to hash.
        self._rights: list[dict[tuple[str, str], int]] = [{} for _ in ResourceType]
        self._any: dict[tuple[str, ResourceType, Operation], bool] = {}

    def load(
        self, acls: Iterable[tuple[Uuid, Acl]], roles: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        """Replaces all ACLs, and the roles of all principals (by their texts)."""
        self._acls = AclIndex(allow_everyone_if_no_acl_found=self._allow_everyone)
        for uuid, acl in acls:
            self._acls.add(uuid, acl)
        self._roles = dict(roles or {})
        self._loaded = True
        self._forget()

    def add_acl(self, uuid: Uuid, acl: Acl) -> None:
        self._acls.add(uuid, acl)
        self._forget()

    def remove_acl(self, uuid: Uuid) -> None:
        self._acls.remove(uuid)
        self._forget()

    @property
    def is_loaded(self) -> bool:
        return self._loaded

    def is_super_user(self, principal: Principal) -> bool:
        return principal.text in self._super_users

    def replace_roles(self, roles: Mapping[str, frozenset[str]]) -> None:
        """Those of all principals, by their texts."""
        self._roles = dict(roles)
        self._forget()

    def set_roles(self, principal_text: str, roles: frozenset[str]) -> None:
        """The names of the roles that it is a member of from now on."""
        if roles:
            self._roles[principal_text] = roles
        else:
            self._roles.pop(principal_text, None)
        self._forget()

    def roles_of(self, principal_text: str) -> frozenset[str]:
        return self._roles.get(principal_text, frozenset())

    def matching(self, wanted: AclFilter) -> Iterable[tuple[Uuid, Acl]]:
        return self._acls.matching(wanted)

    def allows(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        logged: bool = True,
    ) -> bool:
        """`logged`: False if nothing depends on it but what is shown."""
        rights = self._rights[resource_type].get((principal.key, name))
        if rights is None:
            rights = self._find(principal, resource_type, name)
        allowed = rights >> operation & 1 == 1
        if logged and (not allowed or log.isEnabledFor(logging.DEBUG)):
            self._log(principal, operation, resource_type, name)
        return allowed

    def allows_any(
        self, principal: Principal, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there is a resource of the type on which it may be allowed; never logged."""
        if self.is_super_user(principal):
            return True
        if not self._loaded:
            return False
        key = (principal.key, resource_type, operation)
        allowed = self._any.get(key)
        if allowed is None:
            names = self._names(principal)
            allowed = self._acls.allows_any(names, principal.host, operation, resource_type)
            if len(self._any) >= RIGHTS_CACHED_MAX:
                self._any.clear()
            self._any[key] = allowed
        return allowed

    def authorized_operations(
        self, principal: Principal, resource_type: ResourceType, name: str
    ) -> int:
        """The bit field of the protocol: of the supported operations those that are allowed."""
        rights = self._rights[resource_type].get((principal.key, name))
        if rights is None:
            rights = self._find(principal, resource_type, name)
        return rights & _SUPPORTED_BITS[resource_type]

    def decide(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """The same as `allows`, with the reason; not from what is kept."""
        if self.is_super_user(principal):
            return Decision(True, None, SUPER_USER)
        if not self._loaded:
            return Decision(False, None, DEFAULT_DENY)
        names = self._names(principal)
        return self._acls.decide(names, principal.host, operation, resource_type, name)

    def _find(self, principal: Principal, resource_type: ResourceType, name: str) -> int:
        if self.is_super_user(principal):
            rights = EVERY_OPERATION
        elif not self._loaded:
            return 0
        else:
            names = self._names(principal)
            rights = self._acls.operations(names, principal.host, resource_type, name)
        if len(name) <= NAME_CACHED_CHARS_MAX:
            kept = self._rights[resource_type]
            if len(kept) >= RIGHTS_CACHED_MAX:
                kept.clear()
            kept[principal.key, name] = rights
        return rights

    def _names(self, principal: Principal) -> tuple[str, ...]:
        roles = principal.roles | self.roles_of(principal.text)
        return (principal.text, *(f"{ROLE}:{role}" for role in sorted(roles)))

    def _forget(self) -> None:
        for kept in self._rights:
            kept.clear()
        self._any.clear()

    def _log(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        decision = self.decide(principal, operation, resource_type, name)
        fields = {
            "principal": principal.text,
            "operation": operation.name,
            "host": principal.host,
            "resource": _resource_text(resource_type, PatternType.LITERAL, name),
            "rule": _rule_text(decision),
        }
        if decision.allowed:
            log.debug("allowed", extra=fields)
        else:
            log.info("denied", extra=fields)


def _resource_text(resource_type: ResourceType, pattern_type: PatternType, name: str) -> str:
    """Kafka's form, `Topic:LITERAL:orders`."""
    if len(name) > NAME_LOGGED_CHARS_MAX:
        name = f"{name[:NAME_LOGGED_CHARS_MAX]}..."
    kind = resource_type.name.title().replace("_", "")
    return f"{kind}:{pattern_type.name}:{name}"


def _rule_text(decision: Decision) -> str:
    rule = decision.rule
    if rule is None:
        return decision.reason
    resource = _resource_text(rule.resource_type, rule.pattern_type, rule.resource_name)
    who = f"{rule.principal} from {rule.host}"
    return f"{decision.reason}({rule.permission.name} {rule.operation.name} {resource} to {who})"
