"""Who there is and what they may do: the credentials and ACLs that the metadata has.

They are changed by the active controller. Owned by the event loop's thread.
"""

from __future__ import annotations

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.acl_control import describe_acls
from penstock.metadata.image import MetadataImage
from penstock.metadata.scram_control import describe_credentials
from penstock.net.turn import in_turns
from penstock.serving.rights import Rights
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


class SecurityService:
    def __init__(self, image: MetadataImage, rights: Rights) -> None:
        self._image = image
        self._rights = rights

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

    async def acls(
        self, principal: Principal, request: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        """The ACLs that match a filter, as they are now."""
        self._rights.require_cluster(principal, Operation.DESCRIBE)
        self.require_authorizer(principal)
        return await in_turns(describe_acls(self._image.security, request))
