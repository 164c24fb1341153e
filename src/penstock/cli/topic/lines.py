"""Lines of text as messages, and messages as lines of text.

`produce` parses, `consume` renders; JSON lines that one writes the other reads back unchanged.
Bytes that are not UTF-8 stand in JSON as base64 under `key_base64` and `value_base64`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET


class Message(NamedTuple):
    """What one input line asks to be published; None leaves the choice to the client or the
    broker.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp: int | None = None
    partition: int | None = None


class BadLine(ValueError):
    """A line that is no message; the text says why."""


class _JsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_base64: str | None = None


class _JsonMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A field that is misspelt would be lost, and its message published without it."""

    key: str | None = None
    value: Any = UNSET
    headers: dict[str, str | None] | list[_JsonHeader] | None = None
    timestamp: int | None = None
    partition: int | None = None
    offset: int | None = None
    topic: str | None = None
    key_base64: str | None = None
    value_base64: str | None = None


_decoder = msgspec.json.Decoder(_JsonMessage)
_FIELDS = ", ".join(_JsonMessage.__struct_fields__)


def line_parser(form: str, separator: bytes) -> Callable[[bytes], Message]:
    """What turns a line (without its line end) of the input form into a message, or raises
    `BadLine`.
    """
    if form == "lines":
        return lambda line: Message(None, line)
    if form == "key-value":
        return lambda line: _parse_key_value(line, separator)
    return _parse_json


def _parse_key_value(line: bytes, separator: bytes) -> Message:
    key, found, value = line.partition(separator)
    if not found:
        raise BadLine(f"there is no key separator {separator.decode()!r} in it")
    return Message(key, value)


def _parse_json(line: bytes) -> Message:
    try:
        fields = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        allowed = f"; the fields are {_FIELDS}" if "unknown field" in str(e) else ""
        raise BadLine(f"it is not a JSON message ({e}{allowed})") from None
    if fields.timestamp is not None and fields.timestamp < 0:
        raise BadLine("its timestamp is negative")
    if fields.partition is not None and fields.partition < 0:
        raise BadLine("its partition is negative")
    value = _value(fields.value, fields.value_base64)
    return Message(
        _bytes(fields.key, fields.key_base64),
        value,
        _json_headers(fields.headers),
        fields.timestamp,
        fields.partition,
    )


def _json_headers(
    headers: dict[str, str | None] | list[_JsonHeader] | None,
) -> list[tuple[str, bytes | None]] | None:
    if not headers:
        return None
    if isinstance(headers, dict):
        return [(key, None if value is None else value.encode()) for key, value in headers.items()]
    return [(header.key, _bytes(header.value, header.value_base64)) for header in headers]


def _value(value: Any, encoded: str | None) -> bytes | None:
    """What is published as a value. Null has to be said: a message without a value deletes what has
    its key.
    """
    if value is not UNSET and encoded is not None:
        raise BadLine("it has both value and value_base64: keep one of them")
    if encoded is not None:
        return _bytes(None, encoded)
    if value is UNSET:
        raise BadLine('it has no value: give value or value_base64, "value": null for none')
    if value is None or isinstance(value, str):
        return _bytes(value, None)
    return msgspec.json.encode(value)  # an object or a number is published as its JSON


def _bytes(text: str | None, encoded: str | None) -> bytes | None:
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as e:
            raise BadLine(f"{encoded[:20]!r} is not base64 ({e})") from None
    return None if text is None else text.encode()


def json_fields(name: str, data: bytes | None) -> dict[str, str | None]:
    """`data` under `name`, or under `name_base64` when it is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def json_headers(
    headers: list[tuple[str, bytes | None]],
) -> dict[str, str | None] | list[dict[str, str | None]]:
    """Headers as an object where that loses nothing, else (repeated keys, bytes) as a list."""
    if len({key for key, _ in headers}) == len(headers):
        try:
            return {key: None if value is None else value.decode() for key, value in headers}
        except UnicodeDecodeError:
            pass
    return [{"key": key, **json_fields("value", value)} for key, value in headers]


_CONTROL = {
    code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160)) if code not in (9, 10)
}


def display_text(data: bytes | None, *, for_terminal: bool) -> str:
    """`data` for people; on a terminal, control characters are shown instead of obeyed."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return text.translate(_CONTROL) if for_terminal else text
