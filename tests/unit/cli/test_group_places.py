"""What people type about groups: places to go, topics with partitions, CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.errors import EXIT_USAGE, CliError
from penstock.cli.group.options import parse_topics
from penstock.cli.group.places import Destination, Goal, parse_destination, read_csv, write_csv

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Destination(Goal.EARLIEST)),
        ("latest", Destination(Goal.LATEST)),
        ("0", Destination(Goal.OFFSET, 0)),
        ("42", Destination(Goal.OFFSET, 42)),
        ("+10", Destination(Goal.SHIFT, 10)),
        ("-10", Destination(Goal.SHIFT, -10)),
        ("-10s", Destination(Goal.TIME, NOW - 10_000)),
        ("1769860800000", Destination(Goal.TIME, 1_769_860_800_000)),
        ("2026-01-31T12:00:00Z", Destination(Goal.TIME, 1_769_860_800_000)),
    ],
)
def test_places(text: str, expected: Destination) -> None:
    assert parse_destination(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "beginning", "+", "+1h", "1.5", "yesterday"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="is no place to go: write earliest") as refused:
        parse_destination(text, NOW)
    assert refused.value.exit_code == EXIT_USAGE


def test_topics_with_partitions() -> None:
    assert parse_topics(["a", "b:0,2", "b:1"]) == {"a": None, "b": {0, 1, 2}}
    assert parse_topics(["a:1", "a"]) == {"a": None}, "all is more than some"
    assert parse_topics(["a", "a:1"]) == {"a": None}


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:b", "a:-1", "a:1,"])
def test_what_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="is not a topic: write TOPIC"):
        parse_topics([text])


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-z0-9._-]{1,20}", fullmatch=True), st.integers(0, 9999)),
        st.integers(0, 2**63 - 1),
        min_size=1,
    )
)
def test_offsets_survive_their_file(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, int], int]
) -> None:
    path = str(tmp_path_factory.mktemp("csv") / "offsets.csv")
    write_csv(path, offsets)
    assert read_csv(path) == offsets


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no line"),
        ("t,0,1\nt,0\n", "line 2: 't,0' is not topic,partition,offset"),
        ("t,0,-1\n", "line 1: 't,0,-1' is not topic,partition,offset"),
        ("t,0,1\nt,0,2\n", "line 2: t-0 comes twice"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(text)
    with pytest.raises(CliError, match=said):
        read_csv(str(path))
