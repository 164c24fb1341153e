"""Properties files are read as Java reads them, and each entry knows its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.properties import Entry, entries, parse_properties, property_line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b  "}),
        ("a:b\nc d e\n", {"a": "b", "c": "d e"}),
        ("# a=b\n! c=d\n\n", {}),
        ("a=b#c", {"a": "b#c"}),
        ("a=b \\\n    c\r\nd=e", {"a": "b c", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\u00e4\\tb\\=c", {"a": "ä\tb=c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


def test_an_entry_has_the_line_where_it_begins() -> None:
    text = "# one\n\na=1\n! four\nb=2\\\n  ,3\nc=4\n"
    assert list(entries(text)) == [Entry(3, "a", "1"), Entry(5, "b", "2,3"), Entry(7, "c", "4")]


@given(st.text())
def test_a_line_that_is_written_is_read_again(value: str) -> None:
    assert parse_properties("a=1\n" + property_line("k", value) + "z=2\n") == {
        "a": "1",
        "k": value,
        "z": "2",
    }
