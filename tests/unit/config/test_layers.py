from __future__ import annotations

import pytest

from penstock.config.broker_config import broker_config
from penstock.config.layers import BrokerSettings, ConfigEntry, ConfigSource, check_dynamic
from penstock.config.table import ConfigError, UpdateMode

S = ConfigSource


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(e for e in entries if e.name == name)


def test_the_chain_of_a_topic_setting_begins_with_what_is_in_force() -> None:
    settings = BrokerSettings({"log.segment.bytes": "2000000"})
    settings.update({"log.segment.bytes": "3000000"}, {"log.segment.bytes": "4000000"})
    described = entry(settings.describe_topic({"segment.bytes": "5000000"}), "segment.bytes")
    assert described.value == "5000000"
    assert described.source is S.DYNAMIC_TOPIC_CONFIG
    assert [tuple(synonym) for synonym in described.synonyms] == [
        ("segment.bytes", "5000000", S.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "4000000", S.DYNAMIC_BROKER_CONFIG),
        ("log.segment.bytes", "3000000", S.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.segment.bytes", "2000000", S.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", S.DEFAULT_CONFIG),
    ]
    inherited = entry(settings.describe_topic({}), "segment.bytes")
    assert (inherited.value, inherited.source) == ("4000000", S.DYNAMIC_BROKER_CONFIG)


def test_a_coarser_synonym_is_shown_as_it_was_set() -> None:
    settings = BrokerSettings({"log.retention.hours": "2"})
    described = entry(settings.describe_topic({}), "retention.ms")
    assert (described.value, described.source) == ("7200000", S.STATIC_BROKER_CONFIG)
    assert described.synonyms[0] == ("log.retention.hours", "2", S.STATIC_BROKER_CONFIG)


def test_a_broker_describes_every_setting_with_its_update_mode() -> None:
    described = BrokerSettings({"num.partitions": "3"}).describe_broker()
    partitions = entry(described, "num.partitions")
    assert (partitions.value, partitions.source) == ("3", S.STATIC_BROKER_CONFIG)
    assert partitions.read_only
    assert not entry(described, "message.max.bytes").read_only
    assert entry(described, "advertised.listeners").value is None
    assert entry(described, "log.cleaner.io.max.bytes.per.second").value == (
        "1.7976931348623157E308"
    )


def test_dynamic_settings_change_the_typed_config() -> None:
    settings = BrokerSettings({})
    before = settings.config
    assert settings.update({"message.max.bytes": "5000"}, {}) == []
    assert settings.config.message_max_bytes == 5000
    assert before.message_max_bytes == 1_048_588
    assert [e.name for e in settings.describe_cluster()] == ["message.max.bytes"]
    assert settings.update({}, {}) == []
    assert settings.config == before


def test_stored_settings_that_are_not_valid_here_are_left_out() -> None:
    settings = BrokerSettings({})
    refused = settings.update(
        {"gone.setting": "1", "message.max.bytes": "6000"}, {"num.partitions": "4"}
    )
    assert len(refused) == 2
    assert "gone.setting" in refused[0]
    assert "num.partitions cannot be changed while the broker runs" in refused[1]
    assert settings.config.message_max_bytes == 6000
    assert settings.config.num_partitions == 1


def test_settings_that_do_not_fit_together_are_left_out() -> None:
    settings = BrokerSettings({})
    assert settings.update({"log.retention.ms": "0"}, {}) != []
    assert settings.config == broker_config({})
    others = {"message.max.bytes": "6000", "log.retention.ms": "0", "log.segment.bytes": "2000000"}
    [sentence] = settings.update(others, {"listeners": "OTHER://127.0.0.1:2"})[1:]
    assert "is advertised, so it has to stay" in sentence
    assert settings.config == broker_config(
        {"message.max.bytes": "6000", "log.segment.bytes": "2000000"}
    )


@pytest.mark.parametrize(
    ("name", "level", "sentence"),
    [
        ("node.id", UpdateMode.PER_BROKER, "cannot be changed while the broker runs"),
        ("penstock.log.level", UpdateMode.CLUSTER_WIDE, "cannot be set for the whole cluster"),
        ("message.max.bytes", UpdateMode.PER_BROKER, "message.max.bytes cannot be 'debug'"),
    ],
)
def test_what_may_change_while_running(name: str, level: UpdateMode, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_dynamic(name, "debug", level)
    check_dynamic("penstock.log.level", "debug", UpdateMode.PER_BROKER)


def test_layers_from_a_typed_config() -> None:
    texts = {"num.partitions": "7", "listeners": "A://h:1,B://h:2", "log.cleaner.enable": "false"}
    settings = BrokerSettings.of(broker_config(texts))
    assert settings.static == texts
    assert settings.config == broker_config(texts)


def test_a_stored_topic_setting_that_is_not_valid_here_is_described_as_unset() -> None:
    described = BrokerSettings({}).describe_topic({"segment.bytes": "huge", "gone": "1"})
    assert entry(described, "segment.bytes").source is S.DEFAULT_CONFIG
    assert all(e.name != "gone" for e in described)


def test_a_list_is_described_in_its_own_order() -> None:
    described = BrokerSettings({}).describe_topic({"cleanup.policy": "delete,compact"})
    assert entry(described, "cleanup.policy").value == "delete,compact"


def test_the_default_of_a_coarser_name_alone_is_no_chain() -> None:
    settings = BrokerSettings({})
    assert entry(settings.describe_topic({}), "retention.ms").synonyms == []
    settings.update({"log.retention.ms": "9"}, {})
    assert [s.name for s in entry(settings.describe_topic({}), "retention.ms").synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
    ]


LISTENERS = "PLAINTEXT://127.0.0.1:1"


@pytest.mark.parametrize(
    ("static", "listeners", "sentence"),
    [
        ({}, "OTHER://127.0.0.1:2", "is advertised, so it has to stay"),
        ({}, "PLAINTEXT://127.0.0.1:2", "is advertised, so it has to stay"),
        ({}, f"OTHER://127.0.0.1:2,{LISTENERS}", "by the first one, PLAINTEXT"),
        ({}, f"{LISTENERS},SASL_SSL://127.0.0.1:2", "needs a certificate"),
        ({}, f"{LISTENERS},OTHER", "list of NAME://HOST:PORT"),
    ],
)
def test_what_others_were_told_of_listeners_stays(
    static: dict[str, str], listeners: str, sentence: str
) -> None:
    settings = BrokerSettings({"listeners": LISTENERS, **static})
    with pytest.raises(ConfigError, match=sentence):
        settings.check({}, {"listeners": listeners})


def test_a_listener_that_is_not_advertised_may_go() -> None:
    both = f"{LISTENERS},OTHER://127.0.0.1:2"
    settings = BrokerSettings({"listeners": both, "advertised.listeners": LISTENERS})
    settings.check({}, {"listeners": LISTENERS})
    assert settings.update({}, {"listeners": LISTENERS}) == []
    assert len(settings.config.listen) == 1


def test_settings_of_one_listener_are_kept_and_described() -> None:
    name = "listener.name.plaintext.max.connections"
    settings = BrokerSettings.of(broker_config({name: "5"}))
    assert settings.config.of_listener("PLAINTEXT", "max.connections", 9) == 5
    assert settings.config.of_listener("OTHER", "max.connections", 9) == 9
    shown = entry(settings.describe_broker(), name)
    assert (shown.value, shown.source, shown.read_only) == ("5", S.STATIC_BROKER_CONFIG, False)
    settings.update({name: "6"}, {})
    assert settings.config.of_listener("PLAINTEXT", "max.connections", 9) == 6
    check_dynamic(name, "7", UpdateMode.CLUSTER_WIDE)


@pytest.mark.parametrize("text", ["a", "host:1", "127.0.0.1:x", "127.0.0.1"])
def test_limits_by_address_must_name_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="list of ADDRESS:NUMBER"):
        broker_config({"max.connections.per.ip.overrides": text})
