"""The settings of a subscription to clients' metrics (KIP-714), each field a row of the table.

A subscription is a resource with a name. It says which metrics it wants, how often, and of which
clients: those whose attributes match all of its patterns. As in Kafka an attribute matches as a
whole, and a subscription without patterns is for every client.

Patterns are RE2's, not Java's: clients choose what they are matched with, so nothing may backtrack
(`base.regex`). Limits: PATTERN_STATES_MAX; an attribute with more than ATTRIBUTE_CHARACTERS_MAX
characters matches nothing.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.regex import Pattern
from penstock.base.regex_syntax import BadPattern
from penstock.config.table import ConfigError, Setting, SettingType, Table, setting

ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What clients can be matched by."""
ALL_METRICS: Final = "*"
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
INTERVAL_MS_DEFAULT: Final = 300_000
PATTERN_STATES_MAX: Final = 1_000
ATTRIBUTE_CHARACTERS_MAX: Final = 256
_ALPHABET: Final = frozenset(string.printable)


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """What one subscription asks for."""

    metrics: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "The metrics that clients are asked for: those whose names begin with one of these; `*` "
        "for all of them.",
    )
    interval_ms: int = setting(
        SettingType.INT,
        INTERVAL_MS_DEFAULT,
        "How often clients push their metrics: every 100 to 3600000 milliseconds. A client that "
        "several subscriptions match pushes as often as the most frequent one asks for.",
    )
    match: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Of which clients: `ATTRIBUTE=PATTERN` each, of which all have to match. The attributes "
        "are `client_id`, `client_instance_id`, `client_software_name`, `client_software_version`, "
        "`client_source_address` and `client_source_port`; a pattern is a regular expression in "
        "the syntax of RE2. Without any, of all clients.",
    )


CLIENT_METRICS_SETTINGS = Table("client metrics", ClientMetricsConfig, absent={})


class Patterns:
    """The patterns of a subscription, compiled."""

    __slots__ = ("_patterns",)

    def __init__(self, match: Sequence[str]) -> None:
        """`ConfigError` for what is no pattern."""
        self._patterns = dict(_pattern(text) for text in match)

    def match(self, attributes: Mapping[str, str]) -> bool:
        """Whether a client with these attributes is meant."""
        return all(
            name in attributes
            and len(attributes[name]) <= ATTRIBUTE_CHARACTERS_MAX
            and pattern.matches(attributes[name])
            for name, pattern in self._patterns.items()
        )


def client_metrics_config(overrides: Mapping[str, str]) -> ClientMetricsConfig:
    """A subscription as it is stored; what this release does not allow is left out."""
    values: dict[str, Any] = CLIENT_METRICS_SETTINGS.usable(overrides)
    config = ClientMetricsConfig(**values)
    try:
        Patterns(config.match)
    except ConfigError:
        # To leave the pattern out would ask every client.
        return ClientMetricsConfig()
    return config


def check_client_metrics_settings(overrides: Mapping[str, str]) -> None:
    """Refuses, with Kafka's codes, what a subscription cannot be: `ApiError` for unknown names and
    bounds, `ConfigError` for values that are malformed.
    """
    for name in overrides:
        if name not in CLIENT_METRICS_SETTINGS:
            known = ", ".join(CLIENT_METRICS_SETTINGS.rows)
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"there is no client metrics setting {name!r}: there are {known}",
            )
    values: dict[str, Any] = CLIENT_METRICS_SETTINGS.parse(overrides)
    config = ClientMetricsConfig(**values)
    for row in CLIENT_METRICS_SETTINGS:
        if row.type is SettingType.LIST and row.name in overrides:
            _check_list(row, overrides[row.name])
    if not INTERVAL_MS_MIN <= config.interval_ms <= INTERVAL_MS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms cannot be {config.interval_ms}: it must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (an hour)",
        )
    Patterns(config.match)


def _check_list(row: Setting, text: str) -> None:
    if text.strip() and not all(item.strip() for item in text.split(",")):
        raise ConfigError(f"{row.name} cannot be {text[:100]!r}: an element is empty")


def _pattern(text: str) -> tuple[str, Pattern]:
    name, _, pattern = (part.strip() for part in text.partition("="))
    if name not in ATTRIBUTES or not pattern or "=" in pattern:
        raise ConfigError(
            f"match cannot have {text[:100]!r}: write ATTRIBUTE=PATTERN, with one of "
            f"{', '.join(ATTRIBUTES)}"
        )
    try:
        return name, Pattern(pattern, _ALPHABET, others=True, states_max=PATTERN_STATES_MAX)
    except BadPattern as e:
        raise ConfigError(f"match cannot have {text[:100]!r}: {e}") from e
