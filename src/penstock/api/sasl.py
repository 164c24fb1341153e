"""SaslHandshake (17), versions 0 and 1, and SaslAuthenticate (36), versions 0 to 2, where there is
nothing to authenticate: on a listener without SASL, or after the login.

Logins themselves never come here: `api.sasl_gate` has them.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handler(SaslHandshakeRequest, SaslHandshakeResponse)
def sasl_handshake(
    _services: Services, _request: Request[SaslHandshakeRequest]
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@handler(SaslAuthenticateRequest, SaslAuthenticateResponse)
def sasl_authenticate(
    _services: Services, _request: Request[SaslAuthenticateRequest]
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate is expected after SaslHandshake, by a listener with SASL",
    )
