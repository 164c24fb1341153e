"""What people type: times, places, pairs, sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.errors import EXIT_USAGE, CliError, did_you_mean
from penstock.cli.values import (
    EPOCH_MS_MIN,
    Place,
    Position,
    duration_text,
    parse_bandwidth,
    parse_duration_ms,
    parse_headers,
    parse_pairs,
    parse_percent,
    parse_position,
    parse_rate,
    parse_size,
    parse_time_ms,
    time_text,
)

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00.250+00:00", 1_769_860_800_250),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("-250ms", NOW - 250),
        ("-90s", NOW - 90_000),
        ("-15m", NOW - 900_000),
        ("-1h", NOW - 3_600_000),
        ("-7d", NOW - 7 * 86_400_000),
        ("-2w", NOW - 14 * 86_400_000),
        ("1769860800000", 1_769_860_800_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time_ms(text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "", "-1y", "1h", "-h", "2026-13-01", "12:99"])
def test_what_is_no_time_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(CliError, match="is not a time: write it as ISO 8601") as refused:
        parse_time_ms(text, NOW)
    assert refused.value.exit_code == EXIT_USAGE


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_survives_its_text(timestamp: int) -> None:
    assert parse_time_ms(time_text(timestamp), NOW) == timestamp


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Position(Place.BEGINNING)),
        ("end", Position(Place.END)),
        ("0", Position(Place.OFFSET, 0)),
        (str(EPOCH_MS_MIN - 1), Position(Place.OFFSET, EPOCH_MS_MIN - 1)),
        (str(EPOCH_MS_MIN), Position(Place.TIME, EPOCH_MS_MIN)),
        ("-10", Position(Place.LAST, 10)),
        ("-10s", Position(Place.TIME, NOW - 10_000)),
        ("2026-01-31T12:00:00Z", Position(Place.TIME, 1_769_860_800_000)),
    ],
)
def test_places(text: str, expected: Position) -> None:
    assert parse_position(text, NOW) == expected


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(CliError, match="'middle' is not a place in a topic: write beginning, end"):
        parse_position("middle", NOW)


def test_pairs_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_pairs(["a=1", "b=x=y", " c =", "a=1"], "setting") == {
        "a": "1",
        "b": "x=y",
        "c": "",
    }


@pytest.mark.parametrize("item", ["novalue", "=1", ""])
def test_what_is_no_pair_is_refused(item: str) -> None:
    with pytest.raises(CliError, match="is not a setting: write it as key=value"):
        parse_pairs([item], "setting")


def test_a_key_with_two_values_is_refused() -> None:
    with pytest.raises(CliError, match="'a' is given twice"):
        parse_pairs(["a=1", "a=2"], "setting")


def test_headers_may_repeat_a_key() -> None:
    assert parse_headers(["k=1", "k=2=3"]) == [("k", b"1"), ("k", b"2=3")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("100", 100),
        ("16K", 16_384),
        ("1M", 1_048_576),
        ("2MiB", 2_097_152),
        ("1g", 1 << 30),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "1P", "big", "1.5M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_rate, "500", 500),
        (parse_rate, "50k/s", 50_000),
        (parse_rate, "1.5M", 1_500_000),
        (parse_rate, "120/min", 2),
        (parse_rate, "86400k/d", 1_000),
        (parse_bandwidth, "10Gbit/s", 1.25e9),
        (parse_bandwidth, "8kbit", 1_000),
        (parse_percent, "30%", 0.3),
        (parse_percent, "0%", 0),
    ],
)
def test_rates_and_shares(parse: Callable[[str], float], text: str, expected: float) -> None:
    assert parse(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_rate, "50k/w", "is not a rate: write it as 500/s"),
        (parse_rate, "-1/s", "is not a rate"),
        (parse_rate, "fast", "is not a rate"),
        (parse_bandwidth, "1GB/s", "no speed of a network: write it as 500Mbit/s"),
        (parse_percent, "0.3", "no share: write it as 30%"),
        (parse_percent, "101%", "at most 100%"),
    ],
)
def test_what_is_no_rate_or_share_is_refused(
    parse: Callable[[str], float], text: str, said: str
) -> None:
    with pytest.raises(CliError, match=said):
        parse(text)


def test_suggestions_are_made_only_when_something_is_close() -> None:
    assert did_you_mean("ordrs", ["orders", "payments"]) == " (did you mean orders?)"
    assert did_you_mean("zebra", ["orders", "payments"]) == ""


@pytest.mark.parametrize(
    ("text", "duration_ms", "shown"),
    [
        ("0ms", 0, "0ms"),
        ("999ms", 999, "999ms"),
        ("90s", 90_000, "1.5m"),
        ("15m", 900_000, "15.0m"),
        ("36h", 129_600_000, "1.5d"),
        ("1w", 604_800_000, "7.0d"),
    ],
)
def test_lengths_of_time(text: str, duration_ms: int, shown: str) -> None:
    assert parse_duration_ms(text) == duration_ms
    assert duration_text(duration_ms) == shown


@pytest.mark.parametrize("text", ["", "5", "-5m", "5 m", "m", "1.5h"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(CliError, match="is not a length of time") as caught:
        parse_duration_ms(text)
    assert caught.value.exit_code == EXIT_USAGE
