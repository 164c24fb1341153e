"""Which ACL decides: the rules of Kafka's StandardAuthorizer, over an index by resource name.

A rule applies to a resource if its pattern is LITERAL with that name, LITERAL `*`, or PREFIXED with
a beginning of the name; to who asks if it names one of their names or `User:*`; from their address
or `*`; to the operation or ALL. A rule that ALLOWs also allows what is implied (who may read may
describe); one that DENYs does not. Of the rules that apply, any DENY denies; else any ALLOW allows;
else it is denied, but for a resource that no rule is about at all, whoever that rule names: there
`allow_everyone_if_no_acl_found` decides.

Who asks has several names: their own and `Role:x` for each of their roles. A DENY of any of them
denies.

Differs from Kafka 4.3 for names that begin with `*` or a character before it, which topics cannot
have and groups can. Kafka's search for prefixes does not apply rules for `*` to the group `*x`, so
that nobody can be denied it, and may fail or never end for a group such as `(x`.

Cost of a decision: a look-up for the name, one for each length that prefixes have (at most the
length of the name), one for `*`; in each, one for each name of who asks. It does not grow with the
number of rules. No limit of its own: rules are as many as the metadata has. Not thread-safe; the
loop of the node owns it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.auth.types import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from penstock.base.errors import invariant
from penstock.base.ids import Uuid

SUPER_USER: Final = "SuperUser"
DEFAULT_ALLOW: Final = "DefaultAllow"
DEFAULT_DENY: Final = "DefaultDeny"
MATCHING_ACL: Final = "MatchingAcl"

EVERY_OPERATION: Final = sum(1 << operation for operation in Operation)
"""The bit field of all operations."""

_IMPLIED: Final = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
"""Who is allowed the first may also do the second."""
_PROBED_NAME: Final = "hardcode"
"""The name that Kafka tries first when it is asked whether there is any resource."""


_DENIED: Final = tuple(
    EVERY_OPERATION if operation is Operation.ALL else 1 << operation for operation in Operation
)
_ALLOWED: Final = tuple(
    _DENIED[operation] | 1 << _IMPLIED.get(operation, operation) for operation in Operation
)
"""The bit fields of what a rule for an operation denies or allows."""


class Decision(NamedTuple):
    allowed: bool
    rule: Acl | None
    """The ACL that decided; None if none did."""
    reason: str = MATCHING_ACL
    """In Kafka's words: MatchingAcl, SuperUser, DefaultAllow, DefaultDeny."""


class AclFilter(NamedTuple):
    """Which ACLs are meant: None and ANY stand for all; MATCH for what would apply to the name."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: PermissionType = PermissionType.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self._matches_resource(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def _matches_resource(self, acl: Acl) -> bool:
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        wanted = self.pattern_type
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name in (None, acl.resource_name):
            return True
        if wanted is not PatternType.MATCH or self.resource_name is None:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name == WILDCARD
        return self.resource_name.startswith(acl.resource_name)

    def only(self) -> Acl | None:
        """The one ACL that it can match; None if there may be more."""
        if (
            self.resource_name is None
            or self.principal is None
            or self.host is None
            or self.resource_type is ResourceType.ANY
            or self.pattern_type in (PatternType.ANY, PatternType.MATCH)
            or self.operation is Operation.ANY
            or self.permission is PermissionType.ANY
        ):
            return None
        return Acl(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )


_Rules: TypeAlias = dict[str, dict[Uuid, Acl]]
"""By principal."""


class _Resources:
    """The rules about one type of resource."""

    __slots__ = ("_counts", "lengths", "literals", "prefixes", "principals")

    def __init__(self) -> None:
        self.literals: dict[str, _Rules] = {}
        self.prefixes: dict[str, _Rules] = {}
        self.lengths: tuple[int, ...] = ()
        """Of the prefixes, the longest first."""
        self._counts: Counter[int] = Counter()
        self.principals: _Rules = {}

    def add(self, uuid: Uuid, acl: Acl) -> None:
        patterns, name = self._patterns(acl), acl.resource_name
        if patterns is self.prefixes and name not in patterns:
            self._count(len(name), 1)
        patterns.setdefault(name, {}).setdefault(acl.principal, {})[uuid] = acl
        self.principals.setdefault(acl.principal, {})[uuid] = acl

    def remove(self, uuid: Uuid, acl: Acl) -> None:
        patterns, name = self._patterns(acl), acl.resource_name
        _take(patterns[name], acl.principal, uuid)
        if not patterns[name]:
            del patterns[name]
            if patterns is self.prefixes:
                self._count(len(name), -1)
        _take(self.principals, acl.principal, uuid)

    def about(self, name: str) -> Iterator[_Rules]:
        """What applies to this name: its own rules, prefixes from the longest on, the wildcard."""
        if (own := self.literals.get(name)) is not None:
            yield own
        for length in self.lengths:
            if length <= len(name) and (rules := self.prefixes.get(name[:length])) is not None:
                yield rules
        if name != WILDCARD and (every := self.literals.get(WILDCARD)) is not None:
            yield every

    def _patterns(self, acl: Acl) -> dict[str, _Rules]:
        return self.literals if acl.pattern_type is PatternType.LITERAL else self.prefixes

    def _count(self, length: int, change: int) -> None:
        before = self._counts[length]
        self._counts[length] = before + change
        if not before or not self._counts[length]:
            self.lengths = tuple(sorted((+self._counts).keys(), reverse=True))


def _take(rules: _Rules, principal: str, uuid: Uuid) -> None:
    del rules[principal][uuid]
    if not rules[principal]:
        del rules[principal]


class AclIndex:
    """All ACLs, by id and by what they are about."""

    def __init__(self, *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self._acls: dict[Uuid, Acl] = {}
        self._types = {kind: _Resources() for kind in ResourceType}
        self._default_allows = allow_everyone_if_no_acl_found

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, uuid: Uuid, acl: Acl) -> None:
        invariant(uuid not in self._acls, "an ACL is added under an id that another one has")
        self._acls[uuid] = acl
        self._types[acl.resource_type].add(uuid, acl)

    def remove(self, uuid: Uuid) -> None:
        invariant(uuid in self._acls, "an ACL is removed that is not there")
        acl = self._acls.pop(uuid)
        self._types[acl.resource_type].remove(uuid, acl)

    def matching(self, wanted: AclFilter) -> Iterator[tuple[Uuid, Acl]]:
        """Those that were there at the first step; the index may change between steps."""
        for uuid, acl in list(self._acls.items()):
            if wanted.matches(acl):
                yield uuid, acl

    def decide(
        self,
        names: tuple[str, ...],
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        resource_name: str,
    ) -> Decision:
        """`names`: the principal's text, and `Role:x` for each of its roles."""
        found = False
        allowing: Acl | None = None
        for rules in self._types[resource_type].about(resource_name):
            found = True
            for acl in _applying(rules, names, host):
                if acl.permission is not PermissionType.ALLOW:
                    if _DENIED[acl.operation] >> operation & 1:
                        return Decision(False, acl)
                elif allowing is None and _ALLOWED[acl.operation] >> operation & 1:
                    allowing = acl
        if allowing is not None:
            return Decision(True, allowing)
        if found or not self._default_allows:
            return Decision(False, None, DEFAULT_DENY)
        return Decision(True, None, DEFAULT_ALLOW)

    def operations(
        self, names: tuple[str, ...], host: str, resource_type: ResourceType, resource_name: str
    ) -> int:
        """The bit field of all operations that `decide` would allow, for little more than one."""
        found = False
        allowing = denying = 0
        for rules in self._types[resource_type].about(resource_name):
            found = True
            for acl in _applying(rules, names, host):
                if acl.permission is PermissionType.ALLOW:
                    allowing |= _ALLOWED[acl.operation]
                else:
                    denying |= _DENIED[acl.operation]
        if not found:
            return EVERY_OPERATION if self._default_allows else 0
        return allowing & ~denying

    def allows_any(
        self, names: tuple[str, ...], host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be a resource of the type upon which the operation is allowed.

        Kafka's authorizeByResourceType, and as there: a name that stands for all is tried first;
        then some pattern has to allow the operation itself or ALL, without another that denies all
        of what it allows.
        """
        invariant(resource_type > ResourceType.ANY, "no type of resource is named")
        invariant(operation > Operation.ANY, "no operation is named")
        if self.decide(names, host, operation, resource_type, _PROBED_NAME).allowed:
            return True
        patterns: dict[tuple[bool, bool], set[str]] = {
            (allows, literal): set() for allows in (True, False) for literal in (True, False)
        }
        for acl in _applying(self._types[resource_type].principals, names, host):
            if acl.operation in (operation, Operation.ALL):
                allows = acl.permission is PermissionType.ALLOW
                literal = acl.pattern_type is PatternType.LITERAL
                patterns[allows, literal].add(acl.resource_name)
        if WILDCARD in patterns[False, True]:
            return False
        if WILDCARD in patterns[True, True]:
            return True
        left = (patterns[True, True] - patterns[False, True]) | patterns[True, False]
        return any(not _has_prefix(name, patterns[False, False]) for name in left)


def _applying(rules: _Rules, names: tuple[str, ...], host: str) -> Iterator[Acl]:
    for name in (*names, WILDCARD_PRINCIPAL):
        if (own := rules.get(name)) is not None:
            for acl in own.values():
                if acl.host in (WILDCARD, host):
                    yield acl


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
