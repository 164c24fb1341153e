"""Who there is and what they may do: the credentials, ACLs and tokens that the metadata has.

They are changed by the active controller. Owned by the event loop's thread.
"""

from __future__ import annotations

from penstock.auth.principal import ANONYMOUS_NAME, Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import BrokerSettings
from penstock.config.listeners import PLAINTEXT, SSL
from penstock.metadata.acl_control import describe_acls
from penstock.metadata.image import MetadataImage
from penstock.metadata.role_control import describe_roles
from penstock.metadata.scram_control import describe_credentials
from penstock.metadata.security_image import DelegationToken
from penstock.metadata.token_control import TokenRules, describe_tokens
from penstock.net.turn import in_turns
from penstock.serving.rights import Rights
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.wire.messages.describe_roles import DescribeRolesRequest, DescribeRolesResponse
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


class SecurityService:
    def __init__(self, image: MetadataImage, rights: Rights, settings: BrokerSettings) -> None:
        self._image = image
        self._rights = rights
        self._settings = settings
        self._tokens = TokenRules.of(settings.config)

    async def scram_credentials(
        self, principal: Principal, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Which users have SCRAM credentials; never what is in them."""
        self._rights.require_cluster(principal, Operation.DESCRIBE)
        return await in_turns(describe_credentials(self._image.security, request))

    def require_authorizer(self, principal: Principal) -> None:
        """`ApiError` SECURITY_DISABLED where no ACL has an effect."""
        if not self._rights.active:
            raise ApiError(
                ErrorCode.SECURITY_DISABLED,
                "ACLs have no effect here: authorizer.class.name is not set",
            )

    def require_token_channel(self, principal: Principal, listener: str | None) -> None:
        """`ApiError` unless the principal may ask for tokens by this listener, None for one of
        another node: whoever is there must have shown who it is, and not by a token.
        """
        protocol = None if listener is None else self._settings.config.protocol(listener)
        unknown = protocol == PLAINTEXT or (protocol == SSL and principal.name == ANONYMOUS_NAME)
        if principal.token_authenticated or unknown:
            raise ApiError(
                ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
                "tokens are given to who has logged in by SASL or a certificate, not by a token",
            )

    async def delegation_tokens(
        self, principal: Principal, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse:
        """The tokens that the principal may see, with their secrets."""

        def visible(token: DelegationToken) -> bool:
            rights = self._rights
            return rights.shows(
                principal, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id
            ) or rights.shows(principal, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)

        steps = describe_tokens(
            self._image.security, self._tokens, request, principal.text, visible
        )
        return await in_turns(steps)

    async def roles(
        self, principal: Principal, request: DescribeRolesRequest
    ) -> DescribeRolesResponse:
        """The roles and who is a member of them by the metadata."""
        self._rights.require_cluster(principal, Operation.DESCRIBE)
        return await in_turns(describe_roles(self._image.security, request))

    async def acls(
        self, principal: Principal, request: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        """The ACLs that match a filter, as they are now."""
        self._rights.require_cluster(principal, Operation.DESCRIBE)
        self.require_authorizer(principal)
        return await in_turns(describe_acls(self._image.security, request))
