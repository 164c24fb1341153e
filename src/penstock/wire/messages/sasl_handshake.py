"""SaslHandshake: which mechanism a connection authenticates with."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
