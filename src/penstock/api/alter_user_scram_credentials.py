"""AlterUserScramCredentials (51), version 0: what users log in with by SCRAM and PLAIN.

The client sends a salted password; the controller keeps what follows from it.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@handler(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, on_controller=True)
async def alter_user_scram_credentials(
    services: Services, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    body = request.body
    try:
        return await ask(services, request, AlterUserScramCredentialsResponse)
    except ApiError as e:
        names = [one.name for one in body.deletions] + [one.name for one in body.upsertions]
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=user, error_code=e.code, error_message=e.message
                )
                for user in dict.fromkeys(names)
            ]
        )
