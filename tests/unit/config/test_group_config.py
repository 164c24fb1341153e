"""A group's own settings: over the broker's, within the broker's bounds."""

from __future__ import annotations

import pytest

from penstock.config.broker_config import broker_config
from penstock.config.group_config import check_group_settings, group_config
from penstock.config.layers import BrokerSettings, ConfigSource
from penstock.config.table import ConfigError

SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
BROKER = broker_config(
    {
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.session.timeout.ms": "20000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
    }
)


def test_own_settings_stand_over_the_brokers() -> None:
    assert group_config({}, BROKER).consumer_session_timeout_ms == 20_000
    own = group_config({SESSION: "30000", "share.session.timeout.ms": "1", HEARTBEAT: "x"}, BROKER)
    assert own.consumer_session_timeout_ms == 30_000
    assert own.consumer_heartbeat_interval_ms == 5_000, "what cannot be read is left out"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({SESSION: "9999"}, "between group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "group.consumer.max.session.timeout.ms"),
        ({SESSION: "x"}, SESSION),
        ({SESSION: "0"}, SESSION),
        ({HEARTBEAT: "999"}, "group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, "group.consumer.max.heartbeat.interval.ms"),
        ({SESSION: "10000", HEARTBEAT: "10000"}, "less than consumer.session.timeout.ms"),
        ({ASSIGNMENT: "-1"}, ASSIGNMENT),
        ({ASSIGNMENT: "15001"}, "group.consumer.max.assignment.interval.ms"),
        ({"nonsense": "1"}, "there is no group setting 'nonsense'"),
        ({"share.session.timeout.ms": "45000"}, "there are no share groups"),
    ],
)
def test_what_a_group_cannot_have(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_group_settings(settings, BROKER)


def test_what_a_group_can_have() -> None:
    check_group_settings({}, BROKER)
    check_group_settings({SESSION: "10000", HEARTBEAT: "1000", ASSIGNMENT: "0"}, BROKER)


def test_settings_are_described_with_what_lies_beneath() -> None:
    layers = BrokerSettings({"group.consumer.session.timeout.ms": "50000"})
    own = {e.name: e for e in layers.describe_group({SESSION: "55000"})}
    assert [(s.name, s.value, s.source) for s in own[SESSION].synonyms] == [
        (SESSION, "55000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "50000", ConfigSource.STATIC_BROKER_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert own[SESSION].source is ConfigSource.DYNAMIC_GROUP_CONFIG
    assert (own[HEARTBEAT].value, own[HEARTBEAT].source) == ("5000", ConfigSource.DEFAULT_CONFIG)
