"""`penstock topic consume --share`: a person or a script as a member of a share group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from support.process import BrokerProcess

Run = Callable[..., Any]
Names = Callable[[], str]
Topics = Callable[..., str]


@pytest.fixture
def group(node: BrokerProcess, topic_name: Names, share_groups: None) -> str:
    """A share group that begins at the beginning."""
    name = topic_name()
    begin = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[begin])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    return name


def test_each_message_is_done_once_it_is_printed(run: Run, topic: Topics, group: str) -> None:
    name = topic()
    run("topic", "produce", name, stdin="one\ntwo\nthree\nfour\n")
    first = run("topic", "consume", name, "--share", group, "-n", "3")
    assert (first.code, first.err) == (0, "")
    # The fourth was fetched with the others: it was given back, and comes now.
    rest = run("topic", "consume", name, "--share", group, "-n", "1")
    assert (rest.code, rest.err) == (0, "")
    assert sorted((first.out + rest.out).split()) == ["four", "one", "three", "two"]


def test_a_person_decides(run: Run, topic: Topics, group: str) -> None:
    name = topic()
    run("topic", "produce", name, stdin="good\nlater\nbad\n")
    asked = run("topic", "consume", name, "--share", group, "--ack", "ask", stdin="a\nr\n?\nj\n")
    assert asked.code == 0, asked
    assert asked.out.split()[:3] == ["good", "later", "bad"]
    assert "accept, release, reject or quit?" in asked.err
    again = run("topic", "consume", name, "--share", group, "-n", "1", "--format", "json")
    assert [m["value"] for m in again.json_lines()] == ["later"]


def test_without_follow_it_ends_when_nothing_comes(run: Run, topic: Topics, group: str) -> None:
    name = topic()
    run("topic", "produce", name, stdin="one\n")
    ended = run("topic", "consume", name, "--share", group, "--no-follow", "--timeout", "3")
    assert (ended.code, ended.out) == (0, "one\n")


def test_what_does_not_go_together_is_refused(run: Run, topic: Topics) -> None:
    name = topic()
    assert "--ack goes with --share" in run("topic", "consume", name, "--ack", "ask").sentence
    placed = run("topic", "consume", name, "--share", "g", "--from", "end")
    assert "--share excludes --from" in placed.sentence


def test_a_topic_that_is_not_there(run: Run, topic_name: Names, group: str) -> None:
    missing = run("topic", "consume", topic_name(), "--share", group)
    assert "does not exist" in missing.sentence
