from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.broker_config import BROKER_SETTINGS, BrokerConfig, broker_config
from penstock.config.log_config import (
    TOPIC_SETTINGS,
    LogConfig,
    broker_default,
    check_topic_settings,
    log_config,
)
from penstock.config.table import ConfigError, SettingType, value_text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+7", 7),
        ("retention.ms", "-1", -1),
        ("unclean.leader.election.enable", "TRUE", True),
        ("preallocate", " False", False),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("message.timestamp.type", " LogAppendTime ", "LogAppendTime"),
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
    ],
)
def test_texts_are_parsed_as_kafka_parses_them(name: str, text: str, value: object) -> None:
    assert TOPIC_SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("retention.ms", "abc", "a 64-bit whole number of at least -1"),
        ("retention.ms", "-2", "a 64-bit whole number of at least -1"),
        ("retention.ms", "1.5", "a 64-bit whole number of at least -1"),
        ("retention.ms", "", "a 64-bit whole number of at least -1"),
        ("retention.ms", "١", "a 64-bit whole number of at least -1"),
        ("retention.ms", str(1 << 63), "a 64-bit whole number of at least -1"),
        ("segment.bytes", "2147483648", "a 32-bit whole number of at least 1048576"),
        ("compression.gzip.level", "0", "a 32-bit whole number between 1 and 9, or -1"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("min.cleanable.dirty.ratio", "nan", "a number between 0 and 1"),
        ("min.cleanable.dirty.ratio", "1.1", "a number between 0 and 1"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("cleanup.policy", "wipe", "a comma-separated list, each element one of compact, delete"),
        ("remote.storage.enable", "true", "false, since Penstock has no remote tier"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as e:
        check_topic_settings({name: text}, BrokerConfig())
    assert str(e.value) == f"{name} cannot be {text!r}: it must be {allowed}"


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ConfigError) as e:
        TOPIC_SETTINGS["retention.ms"].parse("9" * 5000)
    assert len(str(e.value)) < 200


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("retenton.ms", "there is no topic setting 'retenton.ms'; did you mean retention.ms?"),
        ("zzz", "there is no topic setting 'zzz'; docs/settings.md lists those that exist"),
        (
            "message.downconversion.enable",
            "message.downconversion.enable is a topic setting of Kafka that Penstock does not "
            "have: it went with the old message formats in Kafka 4.0; leave it out",
        ),
    ],
)
def test_an_unknown_topic_setting_is_refused_with_a_hint(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as e:
        check_topic_settings({name: "1"}, BrokerConfig())
    assert str(e.value) == sentence


def test_a_setting_of_kafka_that_is_not_here_says_why() -> None:
    with pytest.raises(ConfigError, match=r"rsm.config.x .* no remote tier"):
        broker_config({"rsm.config.x": "x"})


def test_kafkas_defaults() -> None:
    config = LogConfig()
    assert config.retention_ms == 604_800_000
    assert config.segment_bytes == 1 << 30
    assert config.max_message_bytes == 1_048_588
    assert config.cleanup_policy == {"delete"}
    assert log_config({}, BrokerConfig()) == config


def test_topics_without_settings_share_one_object() -> None:
    broker = BrokerConfig()
    assert log_config({}, broker) is log_config({}, broker)


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_the_broker_settings_counts(
    broker: dict[str, str], retention_ms: int
) -> None:
    assert log_config({}, broker_config(broker)).retention_ms == retention_ms
    assert log_config({"retention.ms": "9"}, broker_config(broker)).retention_ms == 9


def test_every_topic_setting_follows_its_broker_synonyms() -> None:
    broker = BrokerConfig()
    for row in TOPIC_SETTINGS:
        for synonym in row.synonyms:
            assert synonym.name in BROKER_SETTINGS
        default = broker_default(row.name, broker)
        assert value_text(default) == value_text(row.default), row.name


def test_compaction_lags_are_checked_against_each_other() -> None:
    lags = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match="cannot be more than"):
        check_topic_settings(lags, BrokerConfig())


def test_stored_settings_that_are_not_valid_here_do_not_stop_a_topic() -> None:
    stored = {"gone.setting": "1", "retention.ms": "soon", "segment.bytes": "2000000"}
    assert log_config(stored, BrokerConfig()) == LogConfig(segment_bytes=2_000_000)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"listeners": ""}, "listeners cannot be empty"),
        ({"listeners": "localhost:9092"}, "it must be a comma-separated list of NAME://HOST:PORT"),
        ({"listeners": "A://h:1,A://h:2"}, "each listener needs its own name"),
        ({"listeners": "A://h:99999"}, "it must be HOST:PORT"),
        ({"listeners": "A://::1:9092"}, "it must be HOST:PORT"),
        ({"advertised.listeners": "B://h:1"}, "names B, which is not among listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients need an address"),
        ({"advertised.listeners": "PLAINTEXT://[::]:1"}, "clients need an address"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "no address that clients can connect to: set advertised.listeners to "
            "PLAINTEXT://HOST:9092",
        ),
        ({"listeners": "A://h:1,B://[::]:2"}, r"listeners has B://\[::\]:2, which is no address"),
        (
            {"listeners": "A://h:1,B://[0::0]:2", "advertised.listeners": "A://h:1"},
            "no address that clients can connect to",
        ),
        ({"log.dirs": "a,b"}, "it must be one folder"),
        ({"log.retention.ms": "0"}, "must be at least 1, or -1"),
        ({"queued.max.request.bytes": "5"}, "cannot be less than socket.request.max.bytes"),
        ({"controller.quorum.voters": "1@h:1,1@h:2"}, "each voter needs its own id"),
        ({"controller.quorum.voters": "2@h:1,3@h:2"}, "does not name node 1"),
        ({"controller.quorum.voters": "h:1"}, "each voter must be ID@HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": "h"}, "it must be HOST:PORT"),
        ({"broker.session.timeout.ms": "500"}, "must be more than broker.heartbeat.interval.ms"),
        ({"replica.socket.timeout.ms": "1"}, "cannot be less than replica.fetch.wait.max.ms"),
        ({"inter.broker.listener.name": "B"}, "not among listeners"),
        ({"penstock.cluster.id": "short"}, "penstock.cluster.id is wrong: 'short'"),
        ({"penstock.http.listen": "nowhere"}, "penstock.http.listen cannot be 'nowhere'"),
    ],
)
def test_broker_settings_are_checked_against_each_other(
    settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        broker_config(settings)


def test_addresses() -> None:
    config = broker_config(
        {"listeners": "plaintext://[::1]:9092,OUT://:0", "penstock.http.listen": ""}
    )
    assert [tuple(listener) for listener in config.listen] == [
        ("PLAINTEXT", "::1", 9092),
        ("OUT", "", 0),
    ]
    assert str(config.listen[0]) == "PLAINTEXT://[::1]:9092"
    assert config.advertised == config.listen
    assert config.http_listen is None
    assert BrokerConfig().http_listen == ("127.0.0.1", 8082)


def test_a_node_may_listen_everywhere_if_it_says_where_it_is() -> None:
    config = broker_config(
        {"listeners": "A://0.0.0.0:1,B://[::]:2", "advertised.listeners": "A://h:1,B://h:2"}
    )
    assert [listener.host for listener in config.advertised] == ["h", "h"]


def test_every_row_has_a_sound_default_and_a_sentence() -> None:
    for table in (TOPIC_SETTINGS, BROKER_SETTINGS):
        for row in table:
            assert row.doc.endswith("."), row.name
            if row.default is not None:
                text = value_text(row.default)
                assert text is not None
                assert value_text(row.parse(text)) == text, row.name


@given(st.sampled_from([*TOPIC_SETTINGS, *BROKER_SETTINGS]), st.text(max_size=20))
def test_any_text_is_either_parsed_or_refused_with_the_name(row, text: str) -> None:
    try:
        value = row.parse(text)
    except ConfigError as e:
        refused = str(e)
    else:
        refused = row.name
        assert row.parse(value_text(value) or "") == value
    assert refused.startswith(row.name)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_written_so_that_they_read_back(value: float) -> None:
    row = BROKER_SETTINGS["log.cleaner.io.max.bytes.per.second"]
    assert row.type is SettingType.DOUBLE
    text = value_text(value)
    assert text is not None
    assert float(text) == value


@pytest.mark.parametrize("policy", ["compact", "compact,delete", ""])
def test_what_is_consumed_is_deleted_only_where_segments_are_deleted(policy: str) -> None:
    settings = {"penstock.retention.consumed": "all-groups"}
    check_topic_settings(settings, BrokerConfig())
    assert log_config(settings, BrokerConfig()).deletes_consumed
    settings["cleanup.policy"] = policy
    with pytest.raises(ConfigError, match=r"needs cleanup\.policy=delete"):
        check_topic_settings(settings, BrokerConfig())
    assert not log_config(settings, BrokerConfig()).deletes_consumed
