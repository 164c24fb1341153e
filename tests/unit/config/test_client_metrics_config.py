"""Of which clients a subscription wants metrics."""

from __future__ import annotations

import time

import pytest

from penstock.config.client_metrics_config import (
    ATTRIBUTE_CHARACTERS_MAX,
    ClientMetricsConfig,
    Patterns,
    client_metrics_config,
)
from penstock.config.table import ConfigError

CLIENT = {"client_id": "orders-1", "client_software_version": "4.3.1"}


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ((), True),
        (("client_id=orders-.*",), True),
        ((" client_id = orders-[0-9] ",), True),
        (("client_id=orders",), False),  # as a whole
        (("client_id=orders-.*", "client_software_version=4\\..*"), True),
        (("client_id=orders-.*", "client_software_version=3\\..*"), False),
        (("client_source_port=.*",), False),  # nothing is known of it
    ],
)
def test_all_patterns_have_to_match(match: tuple[str, ...], matches: bool) -> None:
    assert Patterns(match).match(CLIENT) is matches


@pytest.mark.parametrize(
    ("pattern", "client_id", "matches"),
    [
        ("auftr.ge", "aufträge", True),
        ("aufträge", "aufträge", True),
        (r"auftr\x{e4}ge", "aufträge", True),
        ("auftr[^a]ge", "aufträge", True),
        ("auftr[a-z]ge", "aufträge", False),
        (".*", "日本", True),
        ("日.", "日本", True),
        (".", "\n", False),
    ],
)
def test_names_may_have_any_character(pattern: str, client_id: str, matches: bool) -> None:
    assert Patterns([f"client_id={pattern}"]).match({"client_id": client_id}) is matches


@pytest.mark.parametrize(
    "pattern", ["client_id", "=a", "who=a", "client_id=", "client_id=(", "client_id=(?=a)b"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="match cannot have"):
        Patterns([pattern])


def test_clients_cannot_make_matching_slow() -> None:
    patterns = Patterns(["client_id=(a+)+b", "client_software_name=(.*a.{100}){2}"])
    started = time.process_time()
    name = "a" * ATTRIBUTE_CHARACTERS_MAX
    assert not patterns.match({"client_id": name, "client_software_name": name})
    assert not patterns.match({"client_id": name * 1_000})
    assert time.process_time() - started < 2
    with pytest.raises(ConfigError, match="too large"):
        Patterns(["client_id=(.*a.{1000}){5}"])


def test_what_is_stored_and_not_allowed_asks_nobody() -> None:
    assert client_metrics_config({"metrics": "a,b", "interval.ms": "soon"}).metrics == ("a", "b")
    stored = {"metrics": "*", "match": "client_id=(?=a)b"}  # as Kafka would take it
    assert client_metrics_config(stored) == ClientMetricsConfig()
