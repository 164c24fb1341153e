"""Envelope: a client's request, passed on to the controller by a broker."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, binary, int16


class EnvelopeRequest(Message, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    request_data: bytes = binary("0+", secret=True)
    request_principal: bytes | None = binary("0+", nullable="0+")
    client_host_address: bytes = binary("0+")


class EnvelopeResponse(Message, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    response_data: bytes | None = binary("0+", nullable="0+", default=None, secret=True)
    error_code: int = int16("0+")
