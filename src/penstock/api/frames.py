"""Request headers in, response frames out; what the dispatcher and Envelope both need."""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from penstock.api.registry import APIS, Api
from penstock.base.steps import Steps
from penstock.net.answer_stream import Part
from penstock.net.turn import in_turns
from penstock.wire.apis import ApiKey
from penstock.wire.decoders import skip_tags
from penstock.wire.errors import WireError
from penstock.wire.schema import Message

_HEADER: Final = struct.Struct(">hhih")
_RESPONSE: Final = struct.Struct(">ii")
LENGTH_BYTES: Final = 4
COPIED_BYTES_MAX: Final = 4096
"""A part of this size is copied in less time than a part more costs."""
UNKNOWN_VERSION = -1


class BadHeader(Exception):
    """A request that cannot be given to any handler; the sentence says why."""


Header: TypeAlias = tuple[Api, int, int, int]
"""The API, its version (`UNKNOWN_VERSION` for ApiVersions in one that is not served), the
correlation id, and where the body begins. A plain tuple: every request has one.
"""


def read_header(frame: memoryview) -> Header:
    """Which API a frame (without its length) is for, or `BadHeader`."""
    try:
        key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
        position = _HEADER.size
        if client_id_size > 0:
            position += client_id_size
            if position > len(frame):
                raise ValueError("the client id reaches beyond the frame")
        api = APIS.get(key)
        if api is None:
            raise BadHeader(f"there is no API {key} here")
        flexible = api.flexible_from is not None and version >= api.flexible_from
        if version not in api.versions:
            if key != ApiKey.API_VERSIONS:
                raise BadHeader(f"{api.key.name} has no version {version} here")
            version, flexible = UNKNOWN_VERSION, False
        if flexible:
            # Almost always there are none.
            position = skip_tags(frame, position, len(frame)) if frame[position] else position + 1
    except (struct.error, IndexError, ValueError) as e:
        raise BadHeader(f"a request header that cannot be read: {e}") from e
    return api, version, correlation_id, position


def client_id(frame: memoryview) -> str | None:
    size = _HEADER.unpack_from(frame)[3]
    if size < 0:
        return None
    try:
        return str(frame[_HEADER.size : _HEADER.size + size], "utf-8")
    except UnicodeDecodeError as e:
        raise WireError("RequestHeader", 2, str(e), field="client_id") from None


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> bytes:
    """The whole frame of `response`: length, header, body."""
    out = _response_header(api_key, max(version, 0), response)
    response.encode_into(out, max(version, 0))
    return _framed(out, correlation_id)


def encode_in_parts(
    api_key: int, version: int, correlation_id: int, response: Message
) -> list[Part]:
    """The same in parts: what is large, such as records, is not copied."""
    head = out = _response_header(api_key, version, response)
    frame: list[Part] = [head]
    for part in response.encode_parts(version):
        if len(part) <= COPIED_BYTES_MAX:
            out += part
        else:
            out = bytearray()
            frame += (part, out)
    _RESPONSE.pack_into(head, 0, sum(map(len, frame)) - LENGTH_BYTES, correlation_id)
    return frame if out else frame[:-1]


def encode_in_steps(
    api_key: int, version: int, correlation_id: int, response: Message
) -> Steps[bytes]:
    """The whole frame of a response with very many elements: it stops now and then, for others to
    run.
    """
    out = _response_header(api_key, version, response)
    out += yield from response.encode_in_steps(version)
    return _framed(out, correlation_id)


async def encode_wide_response(
    api_key: int, version: int, correlation_id: int, response: Message
) -> bytes:
    """The same for a response with very many elements: others run in between."""
    return await in_turns(encode_in_steps(api_key, max(version, 0), correlation_id, response))


def _response_header(api_key: int, version: int, response: Message) -> bytearray:
    out = bytearray(_RESPONSE.size)
    if type(response).is_flexible(version) and api_key != ApiKey.API_VERSIONS:
        out.append(0)  # no tagged fields in the header
    return out


def _framed(out: bytearray, correlation_id: int) -> bytes:
    _RESPONSE.pack_into(out, 0, len(out) - LENGTH_BYTES, correlation_id)
    return bytes(out)
