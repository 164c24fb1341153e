"""Apache's own command-line tools for share groups, unchanged: what they say and what they do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.features import SHARE_VERSION, enable_feature
from support.helpers import make_topic, produce_all, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_groups import SHARE_SETTINGS, set_group, share_member
from support.tools import Done, Tools
from support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

RECORDS = 40
LAG = "LAG"
EXPLICIT_TIMEOUT_MS = "30000"


@pytest.fixture(scope="module")
def broker(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    made = broker_maker(tmp_path_factory.mktemp("share-tools"))
    made.settings |= SHARE_SETTINGS
    with made:
        if made.KIND == "kafka":
            enable_feature(made.bootstrap, SHARE_VERSION)
        yield made


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    made = Tools()
    yield made
    made.close()


class Console:
    """The tools, pointed at the broker."""

    def __init__(self, tools: Tools, broker: BrokerProcess) -> None:
        self._tools = tools
        self._place = ["--bootstrap-server", broker.bootstrap]

    def __call__(self, tool: str, *args: str) -> str:
        return self._tools.output(tool, *self._place, *args)

    def try_(self, tool: str, *args: str) -> Done:
        return self._tools.run(tool, *self._place, *args)

    def groups(self, *args: str) -> str:
        return self("share-groups", "--timeout", EXPLICIT_TIMEOUT_MS, *args)


@pytest.fixture
def console(tools: Tools, broker: BrokerProcess) -> Console:
    return Console(tools, broker)


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: Callable[[], str]) -> str:
    """A topic of two partitions with records in both."""
    name = topic_name()
    make_topic(broker, name, 2)
    publish(broker, name)
    return name


@pytest.fixture
def group(broker: BrokerProcess, group_id: str) -> str:
    with RawClient(broker.host, broker.port) as client:
        set_group(client, group_id, share_auto_offset_reset="earliest")
    return group_id


def publish(broker: BrokerProcess, topic: str) -> None:
    messages = [{"value": f"{i:03}", "partition": i % 2} for i in range(RECORDS)]
    produce_all(producer(broker), topic, messages)


def columns(text: str) -> list[dict[str, str]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def consumed(broker: BrokerProcess, group: str, topic: str) -> None:
    """The group has done all that is in the topic, and has no members any more."""
    with share_member(broker.bootstrap, group, topic) as member:
        member.take(RECORDS)


def test_share_groups_described(
    console: Console, broker: BrokerProcess, topic: str, group: str
) -> None:
    with share_member(broker.bootstrap, group, topic, client_id="worker") as member:
        member.take(RECORDS)
        assert group in console.groups("--list").split()
        states = columns(console.groups("--list", "--state"))
        assert {"GROUP": group, "STATE": "Stable"} in states
        [state] = columns(console.groups("--describe", "--group", group, "--state", "--verbose"))
        assert state["GROUP"] == group
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        [shown] = columns(console.groups("--describe", "--group", group, "--members", "--verbose"))
        assert shown["CLIENT-ID"] == "worker"
        assert f"{topic}:0,1" in "".join(shown.values())
        done = console.try_("share-groups", "--delete", "--group", group)
        assert "is not EMPTY" in done.out

    def left() -> bool:
        return {"GROUP": group, "STATE": "Empty"} in columns(console.groups("--list", "--state"))

    eventually(left)


def offsets(console: Console, group: str) -> list[tuple[str, str, str]]:
    rows = columns(console.groups("--describe", "--group", group, "--offsets", "--verbose"))
    return [(row["PARTITION"], row["START-OFFSET"], row[LAG]) for row in rows]


def lags(console: Console, group: str) -> list[str]:
    """As in Kafka, the start that is shown may be behind: it is persisted with the next change."""
    return [row[2] for row in offsets(console, group)]


def test_share_groups_offsets(
    console: Console, broker: BrokerProcess, topic: str, group: str
) -> None:
    consumed(broker, group, topic)
    half = str(RECORDS // 2)
    eventually(lambda: lags(console, group) == ["0", "0"])

    reset = ["--reset-offsets", "--group", group, "--topic", f"{topic}:1", "--to-earliest"]
    assert "0" in {row["NEW-OFFSET"] for row in columns(console.groups(*reset, "--dry-run"))}
    assert lags(console, group) == ["0", "0"]
    console.groups(*reset, "--execute")
    assert lags(console, group) == ["0", half]
    with share_member(broker.bootstrap, group, topic) as member:
        again = member.take(RECORDS // 2)
        assert {(message.partition(), message.delivery_count()) for message in again} == {(1, 1)}
    eventually(lambda: lags(console, group) == ["0", "0"])

    latest = ["--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute"]
    publish(broker, topic)
    console.groups(*latest)
    end = str(RECORDS)
    assert offsets(console, group) == [("0", end, "0"), ("1", end, "0")]
    back = ["--reset-offsets", "--group", group, "--all-topics", "--execute"]
    console.groups(*back, "--to-datetime", "2020-01-01T00:00:00.000")
    assert [row[1] for row in offsets(console, group)] == ["0", "0"]


def test_share_groups_deleted(
    console: Console, broker: BrokerProcess, topic: str, group: str
) -> None:
    consumed(broker, group, topic)
    eventually(lambda: "Successful" in console.groups(
        "--delete-offsets", "--group", group, "--topic", topic))  # fmt: skip
    assert offsets(console, group) == []
    unknown = console.groups("--delete-offsets", "--group", group, "--topic", "no-such-topic")
    assert "Error" in unknown
    # It begins anew: all of it comes once more.
    consumed(broker, group, topic)
    eventually(lambda: "successful" in console.groups("--delete", "--group", group))
    assert group not in console.groups("--list").split()
    assert "is not a share group" in console.groups("--delete", "--group", group)
    consumed(broker, group, topic)


def test_kinds_of_groups(console: Console, broker: BrokerProcess, topic: str, group: str) -> None:
    consumed(broker, group, topic)
    rows = columns(console("groups", "--list", "--share"))
    assert {"GROUP": group, "TYPE": "Share", "PROTOCOL": "share"} in rows
    assert group in console("groups", "--list", "--group-type", "share")
    assert group not in console("groups", "--list", "--consumer")


def test_settings_of_groups(console: Console, group: str) -> None:
    named = ["--entity-type", "groups", "--entity-name", group]
    change = "share.isolation.level=read_committed,share.record.lock.duration.ms=20000"
    assert "Completed updating" in console("configs", "--alter", *named, "--add-config", change)
    eventually(lambda: "share.record.lock.duration.ms=20000" in console(
        "configs", "--describe", *named))  # fmt: skip
    text = console("configs", "--describe", *named)
    assert "share.isolation.level=read_committed" in text
    assert "share.auto.offset.reset=earliest" in text
    done = console.try_("configs", "--alter", *named, "--add-config", "share.isolation.level=some")
    assert done.code != 0
    console("configs", "--alter", *named, "--delete-config", "share.isolation.level")
    eventually(lambda: "share.isolation.level=read_committed" not in console(
        "configs", "--describe", *named))  # fmt: skip


def test_console_share_consumer(
    console: Console, broker: BrokerProcess, topic: str, group: str
) -> None:
    consumer = ["--topic", topic, "--group", group]
    released = console("console-share-consumer", *consumer, "--release", "--max-messages", "5")
    assert len(released.split()) == 5
    rejected = console("console-share-consumer", *consumer, "--reject", "--max-messages", "4")
    assert len(rejected.split()) == 4
    left = RECORDS - len(rejected.split())
    rest = console("console-share-consumer", *consumer, "--max-messages", str(left))
    assert len(rest.split()) == left
    assert sorted(rest.split() + rejected.split()) == [f"{i:03}" for i in range(RECORDS)]
    shown = ["--formatter-property", "print.delivery=true"]
    publish(broker, topic)
    more = console("console-share-consumer", *consumer, *shown, "--max-messages", "1")
    assert more.startswith("Delivery:1\t")


def events(text: str, name: str) -> list[dict[str, Any]]:
    said = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in said if line["name"] == name]


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_verifiable_share_consumer(console: Console, topic: str, group_id: str, mode: str) -> None:
    text = console(
        "verifiable-share-consumer", "--topic", topic, "--group-id", group_id, "--verbose",
        "--max-messages", str(RECORDS), "--acknowledgement-mode", mode,
        "--offset-reset-strategy", "earliest",
    )  # fmt: skip
    acknowledged = events(text, "offsets_acknowledged")
    assert acknowledged
    assert all(line["success"] for line in acknowledged), acknowledged
    assert sum(line["count"] for line in acknowledged) == RECORDS
    places = [(line["partition"], line["offset"]) for line in events(text, "record_data")]
    assert len(places) == len(set(places)) == RECORDS


def test_share_consumer_performance(console: Console, topic: str, group: str) -> None:
    text = console(
        "share-consumer-perf-test", "--topic", topic, "--group", group,
        "--num-records", str(RECORDS), "--threads", "2", "--timeout", "20000",
    )  # fmt: skip
    names, values = (line.split(", ") for line in text.splitlines()[:2])
    shown = dict(zip(names, values, strict=True))
    assert int(shown["data.consumed.in.nMsg"]) == RECORDS
