"""RenewDelegationToken: let a delegation token live on."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, binary, int16, int32, int64


class RenewDelegationTokenRequest(
    Message, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+"
):
    hmac: bytes = binary("0+", secret=True)
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(
    Message, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+"
):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
