"""`penstock queue`: what share groups hold, and what they gave up, on a node with real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.features import SHARE_VERSION, enable_feature
from support.helpers import make_topic, produce_all, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_groups import (
    ACCEPT,
    REJECT,
    RELEASE,
    SHARE_SETTINGS,
    counts,
    set_group,
    share_member,
    values,
)
from support.waiting import eventually

from .conftest import PENSTOCK, Ended, Run

pytestmark = pytest.mark.penstock_only

Names = Callable[[], str]
DEAD = "dlq.queues"


@pytest.fixture(scope="module")
def node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("queues"))
    broker.settings |= SHARE_SETTINGS | {"transaction.state.log.num.partitions": "3"}
    with broker:
        enable_feature(broker.bootstrap, SHARE_VERSION, 2)
        make_topic(broker, DEAD, 2, {"errors.deadletterqueue.group.enable": "true"})
        yield broker


class Queue:
    """A topic, and a group that works through it and has dead letters."""

    def __init__(self, node: BrokerProcess, run: Run, name: str) -> None:
        self.node = node
        self.topic = name
        self.group = f"workers-{name}"
        self._run = run
        make_topic(node, name)
        self.set(
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=DEAD,
            errors_deadletterqueue_copy_record_enable="true",
        )

    def set(self, **settings: str) -> None:
        with RawClient(self.node.host, self.node.port) as client:
            set_group(client, self.group, **settings)

    def publish(self, *sent: str, **fields: Any) -> None:
        records = [{"value": value.encode(), **fields} for value in sent]
        produce_all(producer(self.node), self.topic, records)

    def member(self, **settings: Any) -> Any:
        return share_member(self.node.bootstrap, self.group, self.topic, **settings)

    def run(self, verb: str, *args: str, **options: Any) -> Ended:
        ended: Ended = self._run("queue", verb, self.group, *args, **options)
        return ended

    def json(self, verb: str, *args: str, code: int = 0) -> Any:
        return self.run(verb, *args, "--format", "json").json(code)

    def reject(self, *sent: str, **fields: Any) -> None:
        """Publish these, and have a worker reject them all."""
        self.publish(*sent, **fields)
        with self.member() as member:
            left = len(sent)
            while left:
                found = member.next()
                member.say(REJECT, *found)
                left -= len(found)
        eventually(lambda: self.dead() >= len(sent))

    def dead(self) -> int:
        return int(self.json("describe")["dead"])

    def taken(self, count: int) -> list[str]:
        with self.member() as member:
            return sorted(value.decode() for value in values(member.take(count)))

    def nothing_comes(self) -> None:
        with self.member() as member:
            assert member.poll(1.0) == []

    def trim(self) -> None:
        assert self._run("topic", "trim", self.topic, "--keep", "0").code == 0


@pytest.fixture
def queue(node: BrokerProcess, run: Run, topic_name: Names) -> Queue:
    return Queue(node, run, topic_name())


def outcome(facts: Any) -> dict[str, int]:
    """What is not zero."""
    names = ("chosen", "revived", "unfinished", "copied", "not_copied", "not_yet")
    return {name: facts[name] for name in names if facts[name]}


def test_who_holds_what(queue: Queue, run: Run) -> None:
    queue.publish("a", "b")
    with queue.member() as ann:
        first = ann.next()
        assert len(first) == 2
        queue.publish("c")
        facts = queue.json("describe", "--locks")
        assert (facts["available"], facts["locked"], facts["parked"], facts["lag"]) == (1, 2, 0, 3)
        [member] = facts["members"]
        [lock] = facts["locks"]
        assert lock["member"] == member["member"]
        assert (lock["first"], lock["last"], lock["deliveries"]) == (0, 1, 1)
        assert (lock["state"], lock["client"]) == ("locked", member["client"])
        assert 0 <= lock["since_s"] < 60
        assert 0 < lock["left_s"] <= 30
        assert member["locked"] == 2
        assert lock["member"] in queue.run("describe", "--locks").out
        ann.say(RELEASE, *first)
        eventually(lambda: queue.json("describe")["locked"] in (0, 2))
        [row] = [r for r in run("queue", "list", "--format", "json").json()
                 if r["group"] == queue.group]  # fmt: skip
        assert (row["lag"], row["dead"], row["state"]) == (3, 0, "Stable")
        assert queue.group in run("queue", "list").out


def test_what_rests_between_deliveries_is_parked(queue: Queue) -> None:
    queue.set(share_retry_backoff_ms="60000")
    queue.publish("a", "b")
    with queue.member() as member:
        member.say(RELEASE, *member.next())
        eventually(lambda: queue.json("describe")["parked"] == 2)
        facts = queue.json("describe", "--locks")
        assert (facts["available"], facts["locked"], facts["lag"]) == (0, 0, 2)
        [row] = facts["locks"]
        assert (row["state"], row["member"], row["deliveries"]) == ("parked", None, 1)
        assert 0 < row["left_s"] <= 60


def test_peek_takes_nothing(queue: Queue) -> None:
    queue.publish("a", "b", "c", key=b"k", headers=[("h", b"1")])
    with queue.member() as member:
        first = member.next()
        member.say(ACCEPT, *first[1:])
        member.say(RELEASE, first[0])
    queue.publish("d")
    for _ in range(2):
        rows = queue.json("peek")
        assert [(r["offset"], r["value"], r["deliveries"]) for r in rows] == [
            (0, "a", 1),
            (3, "d", 0),
        ]
    assert (rows[0]["key"], rows[0]["headers"]) == ("k", {"h": "1"})
    assert len(queue.json("peek", "-n", "1")) == 1
    assert f"{queue.topic}:0:3" in queue.run("peek").out
    with queue.member() as member:
        assert counts(member.take(2)) == {1, 2}
    assert "nothing is available" in queue.run("peek").err


def test_dead_letters_are_peeked_with_their_reason(queue: Queue) -> None:
    queue.set(share_delivery_count_limit="2")
    queue.reject("bad", key=b"k", headers=[("h", b"1")])
    queue.publish("worse")
    with queue.member() as member:
        for _ in range(2):
            member.say(RELEASE, *member.next())
    eventually(lambda: queue.dead() == 2)
    bad, worse = queue.json("peek", "--dead")
    assert (bad["offset"], bad["reason"], bad["deliveries"]) == (0, "rejected", 1)
    assert (bad["key"], bad["value"], bad["headers"]) == ("k", "bad", {"h": "1"})
    assert (worse["reason"], worse["deliveries"], worse["value"]) == ("limit", 2, "worse")
    assert "rejected" in queue.run("peek", "--dead").out


def test_one_message_is_revived_in_place_for_this_group_alone(queue: Queue, run: Run) -> None:
    queue.reject("a", "b", "c")
    message = f"{queue.topic}:0:1"
    dry = queue.json("redrive", "--message", message, "--dry-run")
    assert (dry["dry_run"], outcome(dry)) == (True, {"chosen": 1, "revived": 1})
    assert queue.json("describe")["available"] == 0
    done = queue.json("redrive", "--message", message)
    assert outcome(done) == {"chosen": 1, "revived": 1}
    assert queue.json("describe")["available"] == 1
    assert queue.dead() == 2
    again = queue.json("redrive", "--message", message)
    assert outcome(again) == {"chosen": 1, "unfinished": 1}
    assert queue.taken(1) == ["b"]
    assert len(run("topic", "consume", queue.topic).out.split()) == 3, "nothing was published"
    # Named once more, it comes once more.
    assert outcome(queue.json("redrive", "--message", message)) == {"chosen": 1, "revived": 1}
    assert queue.taken(1) == ["b"]


def test_a_filter_and_then_all_and_nothing_twice(queue: Queue) -> None:
    queue.reject("a", key=b"x", headers=[("kind", b"1")])
    queue.reject("b", key=b"y", headers=[("kind", b"1")])
    queue.reject("c", key=b"y", headers=[("kind", b"2")])
    both = ("--key", "y", "--header", "kind=1")
    assert outcome(queue.json("redrive", *both)) == {"chosen": 1, "revived": 1}
    assert queue.taken(1) == ["b"]
    assert outcome(queue.json("redrive", *both)) == {}
    assert outcome(queue.json("redrive", "--reason", "limit")) == {}
    assert queue.dead() == 2
    assert outcome(queue.json("redrive", "--all")) == {"chosen": 2, "revived": 2}
    assert queue.taken(2) == ["a", "c"]
    assert outcome(queue.json("redrive", "--all")) == {}
    queue.nothing_comes()
    queue.reject("d")
    assert "1 message revived in place" in queue.run("redrive", "--reason", "rejected").out
    assert queue.taken(1) == ["d"]


def test_what_dies_again_is_a_dead_letter_again(queue: Queue) -> None:
    queue.reject("a")
    queue.json("redrive", "--all")
    with queue.member() as member:
        member.say(REJECT, *member.next())
    eventually(lambda: queue.dead() == 1)
    assert outcome(queue.json("redrive", "--all")) == {"chosen": 1, "revived": 1}
    assert queue.taken(1) == ["a"]


def test_what_the_source_has_lost_is_copied_once(queue: Queue, run: Run) -> None:
    queue.reject("a", "b", key=b"k", headers=[("h", b"1")])
    queue.trim()
    dry = queue.json("redrive", "--all", "--dry-run")
    assert outcome(dry) == {"chosen": 2, "copied": 2}
    done = queue.json("redrive", "--all")
    assert (outcome(done), done["retry_topic"]) == (outcome(dry), f"retry.{queue.group}")
    assert outcome(queue.json("redrive", "--all")) == {}
    copies = run("topic", "consume", done["retry_topic"], "--format", "json").json_lines()
    assert [(m["key"], m["value"], m["headers"]) for m in copies] == [
        ("k", "a", {"h": "1"}),
        ("k", "b", {"h": "1"}),
    ]
    named = queue.json("redrive", "--message", f"{queue.topic}:0:1")
    assert outcome(named) == {"chosen": 1, "copied": 1}
    again = run("topic", "consume", done["retry_topic"], "--format", "json").json_lines()
    assert [m["value"] for m in again] == ["a", "b", "b"]


def test_what_was_not_copied_and_is_gone_is_said(queue: Queue) -> None:
    queue.set(errors_deadletterqueue_copy_record_enable="false")
    queue.reject("a")
    queue.publish("b")
    assert queue.taken(1) == ["b"]
    queue.trim()
    refused = queue.run("redrive", "--all")
    assert refused.code == 1
    assert "errors.deadletterqueue.copy.record.enable=true" in refused.sentence
    assert outcome(queue.json("redrive", "--all", code=1)) == {"chosen": 1, "not_copied": 1}
    assert queue.dead() == 1
    assert queue.run("redrive", "--message", f"{queue.topic}:0:0").code == 1
    never_dead = queue.run("redrive", "--message", f"{queue.topic}:0:1").sentence
    assert "has no dead letter of it; nothing was redriven" in never_dead
    beyond = queue.json("redrive", "--message", f"{queue.topic}:0:7", code=1)
    assert outcome(beyond) == {"chosen": 1, "not_yet": 1}


def test_before_anything_has_died(queue: Queue) -> None:
    queue.set(errors_deadletterqueue_topic_name=f"dlq.{queue.topic}")
    queue.publish("a")
    assert queue.taken(1) == ["a"]
    assert outcome(queue.json("redrive", "--all")) == {}
    assert queue.json("peek", "--dead") == []
    assert queue.dead() == 0
    accepted = f"{queue.topic}:0:0"
    assert outcome(queue.json("redrive", "--message", accepted)) == {"chosen": 1, "revived": 1}
    assert queue.taken(1) == ["a"]


def test_a_rate_ctrl_c_and_going_on(queue: Queue) -> None:
    sent = [f"{number:03}" for number in range(100)]
    queue.reject(*sent)
    command = [*PENSTOCK, "queue", "redrive", queue.group, "--all", "--rate", "10/s"]
    began = time.monotonic()
    child = subprocess.Popen(
        [*command, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": queue.node.bootstrap},
    )
    eventually(lambda: queue.json("describe")["available"] >= 5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    facts = json.loads(out)
    assert facts["cancelled"] is True
    first = facts["revived"]
    assert 5 <= first < 100
    assert first <= 10 * (time.monotonic() - began) + 10
    assert b"run it again" in err
    assert queue.json("describe")["available"] == first
    rest = queue.json("redrive", "--all")
    assert outcome(rest) == {"chosen": 100 - first, "revived": 100 - first}
    assert queue.taken(100) == sent
    queue.nothing_comes()


def test_purge(queue: Queue, run: Run) -> None:
    queue.publish("a", "b")
    with queue.member() as member:
        member.say(RELEASE, *member.next())
        refused = queue.run("purge", "--yes")
        assert "has 1 member" in refused.sentence
    queue.publish("c")
    eventually(lambda: queue.json("describe")["state"] == "Empty")
    assert "--yes" in queue.run("purge").sentence
    dry = queue.json("purge", "--dry-run")
    assert [(p["partition"], p["purged"], p["start"]) for p in dry["partitions"]] == [(0, 3, 3)]
    assert queue.json("describe")["lag"] == 3
    assert "does not stand in topic" in queue.run("purge", "--yes", "--topic", "other").sentence
    assert queue.json("purge", "--yes")["partitions"] == dry["partitions"]
    assert queue.json("describe")["lag"] == 0
    queue.publish("d")
    assert queue.taken(1) == ["d"]
    assert len(run("topic", "consume", queue.topic).out.split()) == 4


def test_what_is_no_queue(queue: Queue, run: Run, node: BrokerProcess) -> None:
    assert "does not exist" in run("queue", "describe", "nobody").sentence
    name = f"readers-{queue.topic}"
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": name})
    consumer.subscribe([queue.topic])
    eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
    assert "is no queue" in run("queue", "peek", name).sentence
    consumer.close()
    what = run("queue", "redrive", queue.group)
    assert (what.code, "--all" in what.sentence) == (2, True)
    assert run("queue", "redrive", queue.group, "--message", "x").code == 2
    assert run("queue", "redrive", queue.group, "--all", "--rate", "0/s").code == 2


def test_apache_kafka_has_no_such_requests(
    kafka: BrokerProcess, run_at: Run, topic_name: Names
) -> None:
    enable_feature(kafka.bootstrap, SHARE_VERSION)
    topic = topic_name()
    make_topic(kafka, topic)
    group = f"workers-{topic}"
    with RawClient(kafka.host, kafka.port) as client:
        set_group(client, group, share_auto_offset_reset="earliest")
    produce_all(producer(kafka), topic, [{"value": b"a"}])
    with share_member(kafka.bootstrap, group, topic) as member:
        member.say(RELEASE, *member.next())
    for verb in ("describe", "peek"):
        refused = run_at(kafka.bootstrap, "queue", verb, group)
        assert "Penstock's own" in refused.sentence
    named = run_at(kafka.bootstrap, "queue", "redrive", group, "--message", f"{topic}:0:0")
    assert "Penstock's own" in named.sentence
    listed = run_at(kafka.bootstrap, "queue", "list", "--format", "json")
    assert [(r["group"], r["lag"]) for r in listed.json(1) if r["group"] == group] == [
        (group, None)
    ]
    eventually(lambda: run_at(kafka.bootstrap, "queue", "purge", group, "--yes").code == 0)
