"""DescribeUserScramCredentials (50), version 0: mechanisms and iterations, no secrets."""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handler(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
async def describe_user_scram_credentials(
    services: Services, request: Request[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    try:
        return await services.security.scram_credentials(request.principal, request.body)
    except ApiError as e:
        return DescribeUserScramCredentialsResponse(
            error_code=e.code,
            error_message=e.message,
            results=[
                DescribeUserScramCredentialsResult(
                    user=user.name, error_code=e.code, error_message=e.message
                )
                for user in request.body.users or ()
            ],
        )
