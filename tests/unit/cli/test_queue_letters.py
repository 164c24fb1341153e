"""Dead letters as the command line reads them, and the messages that it is told to redrive."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.errors import CliError
from penstock.cli.queue.dead_letters import PREFIX, Choice, DeadLetter, Source, dead_letter
from penstock.cli.queue.queues import ranges_of
from penstock.cli.queue.redrive import parse_source


class Sent:
    """A message as the client gives it."""

    def __init__(
        self,
        headers: list[tuple[str, bytes | None]] | None,
        key: bytes | None = b"k",
        value: bytes | None = b"v",
    ) -> None:
        self._parts = {"headers": headers, "key": key, "value": value, "partition": 1, "offset": 7}
        self._parts["timestamp"] = (1, 1_700_000_000_000)

    def __getattr__(self, name: str) -> Any:
        return lambda: self._parts[name]


def said(**more: str) -> list[tuple[str, bytes | None]]:
    texts = {"topic": "tasks", "partition": "2", "offset": "9", "group": "g", "reason": "limit"}
    texts |= {"delivery.count": "5", "message": "too often"} | more
    return [("h", b"1"), *((PREFIX + name, text.encode()) for name, text in texts.items())]


def read(*args: Any, **more: Any) -> DeadLetter:
    letter = dead_letter(Sent(*args, **more))  # type: ignore[arg-type]
    assert letter is not None
    return letter


def test_where_it_came_from_and_why() -> None:
    letter = read(said())
    assert (letter.source, str(letter.source)) == (Source("tasks", 2, 9), "tasks:2:9")
    assert (letter.group, letter.reason, letter.deliveries) == ("g", "limit", 5)
    assert (letter.partition, letter.offset, letter.headers) == (1, 7, [("h", b"1")])


@pytest.mark.parametrize(
    "headers",
    [None, [], [("h", b"1")], said(partition="x"), said(offset=""), said()[:1] + said()[2:]],
)
def test_what_is_no_dead_letter(headers: Any) -> None:
    assert dead_letter(Sent(headers)) is None  # type: ignore[arg-type]


def test_only_a_whole_record_may_be_copied() -> None:
    assert read(said()).has_record
    assert read(said(), value=None).has_record, "a record may have no value"
    assert not read(said(), key=None, value=None).has_record, "its own headers come always"
    assert not read(said(omitted="value"), value=None).has_record


def test_filters() -> None:
    letter = read(said())
    assert Choice().takes(letter)
    assert Choice(reason="LIMIT", key=b"k", headers=(("h", b"1"),)).takes(letter)
    for other in (Choice("rejected"), Choice(key=b"x"), Choice(headers=(("h", b"2"),))):
        assert not other.takes(letter)


def test_sources_and_ranges() -> None:
    assert parse_source("tasks:0:12") == Source("tasks", 0, 12)
    for text in ("tasks", "tasks:0", ":0:1", "tasks:0:", "tasks:x:1", "tasks:0:-1"):
        with pytest.raises(CliError, match="TOPIC:PARTITION:OFFSET"):
            parse_source(text)
    assert ranges_of([5, 1, 2, 2, 4]) == [(1, 2), (4, 5)]
