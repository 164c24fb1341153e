"""What an audit tells people: the page, the table, the ranges of time."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from penstock.spark.errors import OptionError
from penstock.spark.lake.audit import Audit, Extent, Group, Place
from penstock.spark.lake.report import LINES_MAX, page, show, to_json
from penstock.spark.lake.rows import Times
from penstock.spark.lake.table import DataFile

HOUR = 498_173


def audit_of(*groups: Group) -> Audit:
    extents = [Extent("topic <a>", 0, 10, 19, 8)]
    places = [Place("missing", "topic <a>", 0, 12)]
    return Audit("topic <a>", "archive b", list(groups), extents, places, ["a note"])


EQUAL = Group(0, HOUR, (5, 5), ("7", "7"))
FEWER = Group(0, HOUR + 1, (5, 4), ("7", "6"))
CHANGED = Group(1, HOUR + 1, (5, 5), ("7", "6"))


def test_the_page_is_whole_and_shows_differences_in_red() -> None:
    text = page(audit_of(EQUAL, FEWER, CHANGED))
    root = ElementTree.fromstring(text.partition("\n")[2].replace('<meta charset="utf-8">', ""))
    bars = [(bar.get("class"), bar.get("height")) for bar in root.iter("rect")]
    assert bars == [("rows", "80"), ("rows", "160"), ("differs", "160")]
    words = [row[-1].text for row in root.iter("tr") if row.get("class") == "bad"]
    assert words == ["-1 rows", "changed"]
    items = [item.text for item in root.iter("li")]
    assert items[1:] == ["note: a note", "missing: topic <a> partition 0 offset 12"]
    assert "8 rows, 2 offsets without a row" in (items[0] or "")


def test_the_terminal_shows_differences_first() -> None:
    groups = [Group(0, HOUR + n, (1, 1), ("1", "1")) for n in range(LINES_MAX)]
    out = io.StringIO()
    show(audit_of(*groups, CHANGED), "text", out)
    text = out.getvalue()
    assert "changed" in text
    assert "1 more are not shown" in text
    assert "differ in 1 of 41 partitions and hours" in text
    with pytest.raises(OptionError, match="text or json"):
        show(audit_of(), "xml")


def test_json_has_all_of_it() -> None:
    found = json.loads(to_json(audit_of(EQUAL)))
    assert found["equal"] is True
    assert found["groups"] == [
        {"partition": 0, "hour": HOUR, "rows": [5, 5], "checksums": ["7", "7"]}
    ]


def test_times_choose_the_files_of_their_hours() -> None:
    times = Times.parse("2026-11-16T05:30", "2026-11-16T08:00+01:00")
    assert times.until == datetime(2026, 11, 16, 7, tzinfo=UTC)
    files = [DataFile("", "2026-11-16", hour, 1, 1) for hour in range(4, 9)]
    assert [file.hour for file in files if times.of_file(file)] == [5, 6]
    assert all(Times().of_file(file) for file in files)
