"""A group's own settings: over the broker's, within the broker's bounds."""

from __future__ import annotations

import pytest

from penstock.config.broker_config import broker_config
from penstock.config.durations import duration_ms
from penstock.config.group_config import (
    ShareGroupConfig,
    StreamsGroupConfig,
    check_group_settings,
    group_config,
    reset_age_ms,
    share_group_config,
    streams_group_config,
)
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
        ({"share.session.timeout.ms": "44999"}, "between group.share.min.session.timeout.ms"),
        ({"share.heartbeat.interval.ms": "15001"}, "group.share.max.heartbeat.interval.ms"),
        ({"share.record.lock.duration.ms": "14999"}, "group.share.min.record.lock.duration.ms"),
        ({"share.record.lock.duration.ms": "999"}, "of at least 1000"),
        ({"share.delivery.count.limit": "11"}, "group.share.max.delivery.count.limit"),
        ({"share.partition.max.record.locks": "4001"}, "max.partition.max.record.locks"),
        ({"share.assignment.interval.ms": "15001"}, "group.share.max.assignment.interval.ms"),
        ({"share.auto.offset.reset": "none"}, "latest, earliest, or by_duration"),
        ({"share.auto.offset.reset": "by_duration:-PT1S"}, "latest, earliest, or by_duration"),
        ({"share.isolation.level": "READ_COMMITTED"}, "one of read_committed"),
        ({"share.renew.acknowledge.enable": "yes"}, "true or false"),
        ({"share.retry.backoff.ms": "-1"}, "share.retry.backoff.ms cannot be '-1'"),
        ({"share.retry.backoff.ms": "300001"}, "not be more than share.retry.backoff.max.ms"),
        ({"share.retry.backoff.max.ms": "604800001"}, "between 1 and 604800000"),
        ({"share.retry.backoff.type": "random"}, "one of constant, linear, exponential"),
        ({"share.retry.backoff.multiplier": "0.5"}, "between 1 and 10"),
        ({"share.assignor.offload.enable": "true"}, "one loop"),
        (
            {"streams.num.standby.replicas": "3"},
            "between no limit .0. and group.streams.max.standby",
        ),
        ({"streams.session.timeout.ms": "1"}, "between group.streams.min.session.timeout.ms"),
        ({"streams.heartbeat.interval.ms": "15001"}, "group.streams.max.heartbeat.interval.ms"),
        ({"streams.assignment.interval.ms": "15001"}, "group.streams.max.assignment.interval.ms"),
        ({"streams.initial.rebalance.delay.ms": "-1"}, "of at least 0"),
        ({"streams.assignor.offload.enable": "true"}, "one loop"),
    ],
)
def test_what_a_group_cannot_have(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_group_settings(settings, BROKER)


def test_a_rest_and_its_ceiling_are_checked_together() -> None:
    longest = {"share.retry.backoff.max.ms": "600000"}
    check_group_settings(longest | {"share.retry.backoff.ms": "600000"}, BROKER)
    check_group_settings(longest, BROKER)


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


def test_share_groups_own_settings_stand_over_the_brokers() -> None:
    assert share_group_config({}, BROKER) == ShareGroupConfig()
    broker = broker_config({"group.share.delivery.count.limit": "3"})
    assert share_group_config({}, broker).share_delivery_count_limit == 3
    own = {
        "share.delivery.count.limit": "10",
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        SESSION: "30000",
        "share.session.timeout.ms": "x",
    }
    assert share_group_config(own, broker) == ShareGroupConfig(
        share_delivery_count_limit=10,
        share_auto_offset_reset="earliest",
        share_isolation_level="read_committed",
        share_renew_acknowledge_enable=False,
    )


def test_what_a_share_group_stored_counts_within_the_bounds_of_now() -> None:
    stored = {"share.session.timeout.ms": "60000", "share.record.lock.duration.ms": "15000"}
    broker = broker_config(
        {
            "group.share.max.session.timeout.ms": "50000",
            "group.share.min.record.lock.duration.ms": "20000",
        }
    )
    config = share_group_config(stored, broker)
    assert config.share_session_timeout_ms == 50_000
    assert config.share_record_lock_duration_ms == 20_000


def test_settings_of_the_broker_are_held_against_each_other() -> None:
    for settings, sentence in (
        ({"group.share.session.timeout.ms": "61000"}, "group.share.max.session.timeout.ms"),
        ({"group.share.record.lock.duration.ms": "1000"}, "min.record.lock.duration.ms"),
        ({"group.share.delivery.count.limit": "11"}, "between 2 and 10"),
        ({"group.share.max.share.sessions": "199"}, "group.share.max.size"),
        ({"group.share.assignors": "uniform"}, "one assignor"),
        ({"group.streams.num.standby.replicas": "3"}, "group.streams.max.standby.replicas"),
        ({"group.streams.heartbeat.interval.ms": "1"}, "min.heartbeat.interval.ms"),
        ({"group.streams.session.timeout.ms": "61000"}, "group.streams.max.session.timeout.ms"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            broker_config(settings)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("P2DT3H4M5.678S", ((2 * 24 + 3) * 60 + 4) * 60_000 + 5_678),
        ("pt1.0009s", 1_000),
        ("PT-1S", -1_000),
        ("-PT1M", -60_000),
        ("PT-0.5S", -500),
        ("-PT-6H+3M", 21_420_000),
        ("PT1,5S", 1_500),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1D", None),
        ("P1M", None),
        ("PT1S ", None),
        ("P1D1H", None),
        ("PT1.1234567890S", None),
        ("P9999999999999999999D", None),
        ("P999999999999999999D", None),
        ("PT\u0661S", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


def test_a_group_may_begin_some_time_ago() -> None:
    check_group_settings({"share.auto.offset.reset": "by_duration:PT1H"}, BROKER)
    assert reset_age_ms("by_duration:PT1H") == 3_600_000
    assert reset_age_ms("earliest") is None


def test_streams_groups_own_settings_stand_over_the_brokers_within_their_bounds() -> None:
    assert streams_group_config({}, BROKER) == StreamsGroupConfig()
    broker = broker_config(
        {"group.streams.num.standby.replicas": "1", "group.streams.max.session.timeout.ms": "50000"}
    )
    assert streams_group_config({}, broker).streams_num_standby_replicas == 1
    own = {
        "streams.num.standby.replicas": "9",
        "streams.initial.rebalance.delay.ms": "0",
        "streams.session.timeout.ms": "60000",
        "streams.heartbeat.interval.ms": "x",
        "share.session.timeout.ms": "50000",
    }
    assert streams_group_config(own, broker) == StreamsGroupConfig(
        streams_num_standby_replicas=2,
        streams_initial_rebalance_delay_ms=0,
        streams_session_timeout_ms=50_000,
    )
