"""SaslAuthenticate: one message of a mechanism, and its answer."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, binary, int16, int64, string


class SaslAuthenticateRequest(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    auth_bytes: bytes = binary("0+", secret=True)


class SaslAuthenticateResponse(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"
):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+", secret=True)
    session_lifetime_ms: int = int64("1+", ignorable=True)
