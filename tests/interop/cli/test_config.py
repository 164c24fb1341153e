"""`penstock config` for topics, groups, client metrics, one broker and all, at a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

Run = Callable[..., Any]
Topics = Callable[..., str]
CLEANER = "log.cleaner.backoff.ms"
"""A setting that can be changed for all brokers and for one."""


@pytest.fixture
def clean(run: Run) -> Iterator[None]:
    """Leaves the shared broker as it was."""
    yield
    for whose in ("cluster", "broker:1"):
        assert run("config", "unset", whose, CLEANER).code == 0


def _get(run: Run, resource: str, key: str) -> dict[str, Any]:
    [entry] = run("config", "get", resource, key, "--format", "json").json()
    found: dict[str, Any] = entry
    return found


def test_a_topic(run: Run, topic: Topics) -> None:
    whose = f"topic:{topic()}"
    done = run("config", "set", whose, "max.message.bytes=2000", "cleanup.policy=compact,delete")
    assert done.out == f"set 2 settings of topic {whose.removeprefix('topic:')}\n"
    entry = _get(run, whose, "max.message.bytes")
    assert (entry["value"], entry["source"]) == ("2000", "dynamic topic")
    assert [layer["source"] for layer in entry["synonyms"]][-1] == "default"
    lines = run("config", "get", whose, "max.message.bytes").out.splitlines()
    assert lines[1].split() == ["max.message.bytes", "2000", "dynamic", "topic"]
    assert lines[-1].split()[-1] == "default"
    changed = run("config", "describe", whose, "--format", "json").json()
    assert {"max.message.bytes", "cleanup.policy"} <= {entry["name"] for entry in changed}
    assert all(entry["source"] != "default" for entry in changed)
    everything = run("config", "describe", whose, "--all", "--format", "json").json()
    assert len(everything) > len(changed)
    assert run("config", "unset", whose, "max.message.bytes").code == 0
    assert _get(run, whose, "max.message.bytes")["source"] != "dynamic topic"


def test_all_brokers_and_one_above_them(run: Run, clean: None) -> None:
    assert run("config", "set", "cluster", f"{CLEANER}=20000").code == 0
    entry = _get(run, "broker:1", CLEANER)
    assert (entry["value"], entry["source"]) == ("20000", "dynamic default broker")
    assert run("config", "set", "broker:1", f"{CLEANER}=30000").code == 0
    entry = _get(run, "broker:1", CLEANER)
    assert (entry["value"], entry["source"]) == ("30000", "dynamic broker")
    assert [layer["value"] for layer in entry["synonyms"]][:2] == ["30000", "20000"]
    assert _get(run, "cluster", CLEANER)["value"] == "20000"
    assert CLEANER in run("config", "describe", "cluster").out


def test_a_group(run: Run) -> None:
    whose = "group:of-the-test"
    assert run("config", "set", whose, "consumer.session.timeout.ms=50000").code == 0
    entry = _get(run, whose, "consumer.session.timeout.ms")
    assert (entry["value"], entry["source"]) == ("50000", "dynamic group")
    assert run("config", "unset", whose, "consumer.session.timeout.ms").code == 0
    assert _get(run, whose, "consumer.session.timeout.ms")["value"] == "45000"


def test_a_subscription_to_metrics_of_clients(run: Run) -> None:
    whose = "client-metrics:of-the-test"
    given = ["metrics=a.,b.", "match=client_id=c-.*,client_software_name=d"]
    done = run("config", "set", whose, *given)
    assert done.out == "set 2 settings of client-metrics of-the-test\n"
    entry = _get(run, whose, "match")
    assert (entry["value"], entry["source"]) == (given[1][6:], "dynamic client metrics")
    assert _get(run, whose, "interval.ms")["source"] == "default"
    assert run("config", "unset", whose, "metrics", "match").code == 0
    assert run("config", "describe", whose, "--format", "json").json() == []


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("describe", "brokr:1"), 2, "write broker:ID, client-metrics:NAME, cluster"),
        (("describe", "broker:one"), 2, "'broker:one' has no settings"),
        (("describe", "broker:99"), 1, "there is no node 99"),
        (("describe", "topic:there-is-none"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("get", "broker:1", "log.retention.mss"), 1, "did you mean log.retention.ms?"),
        (("get", "cluster", "log.retention.bytes"), 1, "is not set for the cluster"),
        (("set", "broker:1", "no.such.setting=1"), 1, "no.such.setting"),
        (("set", "broker:1", "node.id=7"), 1, "node.id"),
        (("set", "cluster", "one"), 2, "'one' is not a setting: write it as key=value"),
    ],
)
def test_refusals(run: Run, args: tuple[str, ...], code: int, said: str) -> None:
    ended = run("config", *args)
    assert (ended.code, said in ended.sentence) == (code, True), ended
