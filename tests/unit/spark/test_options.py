"""`kafka.*` options: one table for source and sink, held against what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.kafka import settings
from penstock.kafka.errors import SettingError
from penstock.kafka.settings import ALIASES, REFUSED_FAMILIES
from penstock.spark import client_settings_doc
from penstock.spark.client_settings import FOLLOWED, REFUSED, UNUSED
from penstock.spark.options import FETCH_BYTES_MAX, SourceOptions, source_options
from penstock.spark.sink import SinkOptions, sink_options

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kafka-options.md"
SERVERS = {"kafka.bootstrap.servers": "h:1"}


def source(**kafka: str) -> SourceOptions:
    return source_options({**SERVERS, **_named(kafka), "subscribe": "t"})


def sink(**kafka: str) -> SinkOptions:
    return sink_options({**SERVERS, **_named(kafka), "topic": "t"})


def _named(kafka: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}


def test_the_tables_do_not_contradict_each_other() -> None:
    shared = (settings.FOLLOWED, settings.UNUSED, settings.REFUSED, ALIASES)
    tables = (*shared, FOLLOWED, UNUSED, REFUSED)
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)
    known = settings.FOLLOWED.keys() | settings.UNUSED.keys() | FOLLOWED.keys() | UNUSED.keys()
    assert set(ALIASES.values()) <= known
    assert not any(name.startswith(tuple(REFUSED_FAMILIES)) for name in names)


@pytest.mark.parametrize("name", settings.UNUSED | UNUSED)
def test_what_has_no_effect_is_taken_by_both(name: str) -> None:
    given = {**SERVERS, f"kafka.{name}": "1"}
    assert source_options({**given, "subscribe": "t"}) == source()
    assert sink_options({**given, "topic": "t"}) == sink()


@pytest.mark.parametrize(
    "name",
    [*settings.REFUSED, *REFUSED, "sasl.kerberos.service.name", "sasl.oauthbearer.x"],
)
def test_what_is_refused_says_what_to_do(name: str) -> None:
    for options, more in ((source_options, {"subscribe": "t"}), (sink_options, {"topic": "t"})):
        with pytest.raises(SettingError, match=rf"option kafka\.{name} is not supported: \w+"):
            options({**SERVERS, **more, f"kafka.{name}": "1"})


def test_an_unknown_one_is_named_with_the_nearest() -> None:
    for ask in (source, sink):
        with pytest.raises(SettingError) as failed:
            ask(request_time_ms="1")
        assert "unknown option kafka.request.time.ms" in str(failed.value)
        assert "did you mean kafka.request.timeout.ms?" in str(failed.value)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == client_settings_doc.page(), "run: make docs"


def test_the_connection() -> None:
    given = {
        "client_id": "me",
        "request_timeout_ms": "1500",
        "socket_connection_setup_timeout_ms": "200",
        "connections_max_idle_ms": "9000",
        "receive_buffer_bytes": "65536",
        "send_buffer_bytes": "-1",
    }
    found = source(**given).client
    assert (found.client_id, found.answer_s, found.connect_s) == ("me", 1.5, 0.2)
    assert (found.idle_s, found.receive_buffer_bytes, found.send_buffer_bytes) == (9, 65536, -1)
    assert sink(**given).client == found
    assert found.security.protocol == "PLAINTEXT"


def test_librdkafkas_names_are_javas() -> None:
    one = source(socket_timeout_ms="1500", fetch_wait_max_ms="7", fetch_message_max_bytes="9")
    other = source(request_timeout_ms="1500", fetch_max_wait_ms="7", max_partition_fetch_bytes="9")
    assert one == other
    assert one != source()
    assert source(socket_timeout_ms="5000", request_timeout_ms="5000").client.answer_s == 5
    with pytest.raises(SettingError, match="two names for one setting"):
        source(socket_timeout_ms="5000", request_timeout_ms="6000")


def test_fetching() -> None:
    assert source().fetch_bytes_max == FETCH_BYTES_MAX
    found = source(fetch_max_bytes="5000", max_partition_fetch_bytes="4000", fetch_min_bytes="3")
    assert (found.fetch_bytes_max, found.fetch_bytes_min) == (4000, 3)
    with pytest.raises(SettingError, match=r"fetch\.max\.wait\.ms \(900\) is not less than"):
        source(fetch_max_wait_ms="900", request_timeout_ms="900")
    assert source(default_api_timeout_ms="2000").answer_s_max == 2
    assert source(group_id="g").group == "g"
    assert source(isolation_level="read_committed").committed


def test_writing() -> None:
    found = sink(acks="all", delivery_timeout_ms="3000", transaction_timeout_ms="4000")
    assert (found.settle_s, found.transaction_timeout_ms) == (3, 4000)
    assert sink(compression_codec="lz4").compression.name == "LZ4"
    with pytest.raises(SettingError, match=r"option kafka\.acks is 1: the sink always writes"):
        sink(request_required_acks="1")
    assert source(acks="1", compression_type="lz4") == source()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("request_timeout_ms", "soon", "kafka.request.timeout.ms must be milliseconds, a whole"),
        ("request_timeout_ms", "0", "from 1, not '0'"),
        ("request_timeout_ms", "99999999999", "kafka.request.timeout.ms must be milliseconds"),
        ("receive_buffer_bytes", "-2", "kafka.receive.buffer.bytes must be bytes, a whole number"),
        ("bootstrap_servers", "h", "kafka.bootstrap.servers must be HOST:PORT"),
    ],
)
def test_values_that_make_no_sense(name: str, value: str, said: str) -> None:
    for ask in (source, sink):
        with pytest.raises(SettingError) as failed:
            ask(**{name: value})
        assert said in str(failed.value)


def test_passwords_are_not_shown() -> None:
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "ann"}
    for found in (source(**login, sasl_password="pencil"), sink(**login, sasl_password="pencil")):
        assert "ann" in repr(found)
        assert "pencil" not in repr(found)
