"""Lines as messages and messages as lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.topic.lines import (
    BadLine,
    Message,
    display_text,
    json_fields,
    json_headers,
    line_parser,
)

_parse_json = line_parser("json", b":")


def test_a_line_is_a_value() -> None:
    assert line_parser("lines", b":")(b"a:b\xff") == Message(None, b"a:b\xff")


def test_the_first_separator_parts_key_and_value() -> None:
    parse = line_parser("key-value", b"::")
    assert parse(b"k::v::w") == Message(b"k", b"v::w")
    assert parse(b"::") == Message(b"", b"")
    with pytest.raises(BadLine, match="no key separator '::'"):
        parse(b"k:v")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"value": null}', Message(None, None)),
        (b'{"value": "v", "key": "k"}', Message(b"k", b"v")),
        (b'{"value": {"a": [1, 2]}}', Message(None, b'{"a":[1,2]}')),
        (b'{"value": 0}', Message(None, b"0")),
        (
            b'{"value": null, "key": "k", "timestamp": 5, "partition": 2}',
            Message(b"k", None, None, 5, 2),
        ),
        (
            b'{"value": "v", "headers": {"a": "1", "b": null}}',
            Message(None, b"v", [("a", b"1"), ("b", None)]),
        ),
        (
            b'{"value": 1, "headers": [{"key": "a", "value": "1"},'
            b' {"key": "a", "value_base64": "/w=="}, {"key": "b", "value": null}]}',
            Message(None, b"1", [("a", b"1"), ("a", b"\xff"), ("b", None)]),
        ),
        (b'{"value_base64": "/w==", "key_base64": ""}', Message(b"", b"\xff")),
    ],
)
def test_json_messages(line: bytes, expected: Message) -> None:
    assert _parse_json(line) == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not a JSON message"),
        (b"[]", "not a JSON message"),
        (b"{}", 'it has no value: give value or value_base64, "value": null for none'),
        (b'{"key": "k"}', "it has no value"),
        (
            b'{"value": "v", "kye": "k"}',
            "unknown field `kye`; the fields are key, value, headers, timestamp, partition, offset,"
            " topic, key_base64, value_base64",
        ),
        (b'{"value": "v", "value_base64": "/w=="}', "both value and value_base64"),
        (b'{"value": 1, "headers": [{"key": "h", "vlaue": "x"}]}', "unknown field `vlaue`"),
        (b'{"key": 1}', "not a JSON message"),
        (b'{"value_base64": "!"}', "not base64"),
        (b'{"value": "v", "timestamp": -1}', "timestamp is negative"),
        (b'{"value": "v", "partition": -1}', "partition is negative"),
        (b'{"value": "\xff"}', "not a JSON message"),
    ],
)
def test_what_is_no_json_message_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        _parse_json(line)


@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4),
)
def test_what_is_rendered_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = json.dumps(
        {**json_fields("key", key), **json_fields("value", value), "headers": json_headers(headers)}
    )
    assert _parse_json(line.encode()) == Message(key, value, headers or None)


def test_a_terminal_is_shown_control_characters_instead_of_obeying_them() -> None:
    assert display_text(b"\x1b[31mred\x07", for_terminal=True) == "\\x1b[31mred\\x07"
    assert display_text(b"\x1b[31m", for_terminal=False) == "\x1b[31m"
    assert display_text(b"a\xff", for_terminal=False) == "a\\xff"
    assert display_text(None, for_terminal=True) == "null"
