"""ExpireDelegationToken: let a delegation token end earlier, or at once."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, binary, int16, int32, int64


class ExpireDelegationTokenRequest(
    Message, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+"
):
    hmac: bytes = binary("0+", secret=True)
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(
    Message, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+"
):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
