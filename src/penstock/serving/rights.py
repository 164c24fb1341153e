"""The one place where a node asks what a principal may do.

Every service asks here before it does anything, for each resource that a request names: before it
looks whether the resource exists, so that a refusal does not tell. What is left out of an answer,
and what is refused with which code, is Kafka's, request by request.

Without `authorizer.class.name` everything is allowed, and `active` is False: that is all that the
way of a message looks at. Until the metadata has been loaded, only super users are let through.
Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from penstock.auth.authorizer import SUPPORTED_OPERATIONS, Authorizer
from penstock.auth.principal import Principal
from penstock.auth.types import CLUSTER_NAME, Operation, ResourceType
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicKey
from penstock.metadata.delta import SecurityDelta
from penstock.metadata.image import MetadataImage

NOT_ASKED_FOR: Final = -(1 << 31)
"""In the place of authorised operations that nobody asked for."""
DENIED: Final = "no ACL allows it, or one denies it"
"""What is said beside the code; never a name."""
TOPIC_DENIED: Final = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)
OnDenied: TypeAlias = Callable[[Principal, Operation, ResourceType, str], None]
_TOPIC: Final = ResourceType.TOPIC  # a member by its name takes longer than the look-up
_DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def operation_bits(resource_type: ResourceType) -> int:
    """All operations on a resource, as the protocol shows them."""
    return sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type])


class Rights:
    def __init__(self, image: MetadataImage, authorizer: Authorizer | None = None) -> None:
        self._image = image
        self._authorizer = authorizer
        self.active: Final = authorizer is not None
        """Whether there is anything to ask."""
        self.on_denied: OnDenied | None = None
        """Told of what is refused, not of what is left out."""
        self.before_change: Callable[[Principal], None] | None = None
        """`ApiError` while nothing may be changed; asked before any change."""

    # -- following the metadata ----------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        """Whether what is denied is denied by the metadata, and not for want of it."""
        return self._authorizer is None or self._authorizer.is_loaded

    def load(self) -> None:
        """The metadata has caught up: from now on its ACLs decide."""
        if self._authorizer is not None:
            security = self._image.security
            self._authorizer.load(security.acls.items(), _roles_by_member(security.roles))

    def apply(self, delta: SecurityDelta) -> None:
        """`delta` was applied to the image."""
        authorizer = self._authorizer
        if authorizer is None or not authorizer.is_loaded:
            return
        for acl_id in delta.acls_removed:
            authorizer.remove_acl(acl_id)
        for acl_id, acl in delta.acls_added.items():
            authorizer.add_acl(acl_id, acl)
        if delta.roles:
            authorizer.replace_roles(_roles_by_member(self._image.security.roles))

    # -- may they? -----------------------------------------------------------------------------

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if self._authorizer is None or self._authorizer.allows(
            principal, operation, resource_type, name
        ):
            return True
        if self.on_denied is not None:
            self.on_denied(principal, operation, resource_type, name)
        return False

    def topic(self, principal: Principal, operation: Operation, topic: TopicKey) -> bool:
        """By its name or its id; an id that nobody knows may be asked for."""
        if self._authorizer is None:
            return True
        if isinstance(topic, bytes):
            found = self._image.topics_by_id.get(topic)
            if found is None:
                return True
            topic = found.name
        if self._authorizer.allows(principal, operation, _TOPIC, topic):
            return True
        if self.on_denied is not None:
            self.on_denied(principal, operation, _TOPIC, topic)
        return False

    def group(self, principal: Principal, operation: Operation, group_id: str) -> bool:
        return self.allows(principal, operation, ResourceType.GROUP, group_id)

    def transactional_id(self, principal: Principal, operation: Operation, id_: str) -> bool:
        return self.allows(principal, operation, ResourceType.TRANSACTIONAL_ID, id_)

    def cluster(self, principal: Principal, operation: Operation) -> bool:
        return self.allows(principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def cluster_shows(self, principal: Principal, operation: Operation) -> bool:
        """The same where a right to the single resources would do: that is not logged."""
        return self.shows(principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def shows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """The same where nothing is refused, but left out: that is not logged."""
        return self._authorizer is None or self._authorizer.allows(
            principal, operation, resource_type, name, logged=False
        )

    def sees_all(self, principal: Principal) -> bool:
        """Whether they may do everything, so that nothing has to be looked through for them."""
        return self._authorizer is None or self._authorizer.is_super_user(principal)

    def any_topic(self, principal: Principal, operation: Operation) -> bool:
        """Whether there can be a topic that they may do it with."""
        return self._authorizer is None or self._authorizer.allows_any(
            principal, operation, ResourceType.TOPIC
        )

    def operations(self, principal: Principal, resource_type: ResourceType, name: str) -> int:
        """What they may do with it, as the bits of the protocol."""
        if self._authorizer is None:
            return operation_bits(resource_type)
        return self._authorizer.authorized_operations(principal, resource_type, name)

    def require_change(self, principal: Principal) -> None:
        """`ApiError` if they may change nothing at the moment."""
        if self.before_change is not None:
            self.before_change(principal)

    # -- or be refused -------------------------------------------------------------------------

    def require(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """`ApiError` with the code of the resource unless they may."""
        if not self.allows(principal, operation, resource_type, name):
            raise ApiError(_DENIED[resource_type], DENIED)

    def require_topic(self, principal: Principal, operation: Operation, topic: TopicKey) -> None:
        if not self.topic(principal, operation, topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)

    def require_group(self, principal: Principal, operation: Operation, group_id: str) -> None:
        self.require(principal, operation, ResourceType.GROUP, group_id)

    def require_transactional_id(
        self, principal: Principal, operation: Operation, id_: str
    ) -> None:
        self.require(principal, operation, ResourceType.TRANSACTIONAL_ID, id_)

    def require_cluster(self, principal: Principal, operation: Operation) -> None:
        self.require(principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def _roles_by_member(roles: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for role, members in roles.items():
        for member in members:
            found[member].add(role)
    return {member: frozenset(names) for member, names in found.items()}
