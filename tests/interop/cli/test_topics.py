"""Every `penstock topic` command about topics themselves, against a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
Names = Callable[[], str]
Topics = Callable[..., str]


def test_create_says_what_it_made(run: Run, topic_name: Names) -> None:
    name = topic_name()
    made = run("topic", "create", name, "-p", "3", "-c", "retention.ms=60000")
    assert (made.code, made.out, made.err) == (0, f"created topic {name}\n", "")
    described = run("topic", "describe", name, "--format", "json").json()[0]
    assert described["topic"] == name
    assert re.fullmatch(r"[\w-]{22}", described["id"])
    assert {"name": "retention.ms", "value": "60000", "source": "dynamic topic"} in described[
        "configs"
    ]
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]


def test_create_twice_is_an_error_unless_that_is_allowed(run: Run, topic_name: Names) -> None:
    name = topic_name()
    assert run("topic", "create", name, "--format", "json").json() == {
        "topic": name,
        "created": True,
    }
    refused = run("topic", "create", name)
    assert refused.code == 1
    assert refused.sentence.startswith(f"cannot create topic '{name}': ")
    assert f"opic '{name}' already exists" in refused.sentence
    assert refused.sentence.endswith("add --if-not-exists")
    again = run("topic", "create", name, "--if-not-exists", "--format", "json")
    assert again.json() == {"topic": name, "created": False}


def test_a_setting_that_is_not_known_is_named(run: Run, topic_name: Names) -> None:
    refused = run("topic", "create", topic_name(), "-c", "retention.mss=1")
    assert refused.code == 1
    assert "retention.mss" in refused.sentence


def test_a_value_that_is_not_allowed_is_named(run: Run, topic_name: Names) -> None:
    refused = run("topic", "create", topic_name(), "-c", "retention.ms=soon")
    assert refused.code == 1
    assert "retention.ms" in refused.sentence
    assert "soon" in refused.sentence


def test_a_name_that_is_not_allowed_is_refused(run: Run) -> None:
    assert "choose another name" in run("topic", "create", "no spaces").sentence


def test_more_replicas_than_brokers_are_refused(run: Run, topic_name: Names) -> None:
    assert (
        "give -r no more than there are brokers"
        in run("topic", "create", topic_name(), "-r", "3").sentence
    )


def test_list_shows_names_partitions_and_replicas(run: Run, topic: Topics) -> None:
    name = topic(partitions=2)
    lines = run("topic", "list").out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [name, "2", "1"] in [line.split() for line in lines]
    listed = run("topic", "list", "--format", "json").json()
    assert {"topic": name, "partitions": 2, "replicas": 1} in listed


def test_list_keeps_internal_topics_back_unless_asked(run: Run) -> None:
    run("topic", "create", "__of-the-house", "--if-not-exists")
    assert "__of-the-house" not in run("topic", "list").out
    assert "__of-the-house" in run("topic", "list", "--internal").out


def test_describe_shows_where_each_partition_stands(run: Run, topic: Topics) -> None:
    name = topic(partitions=2, config={"max.message.bytes": "12345"})
    run("topic", "produce", name, "--partition", "1", stdin="a\nb\nc\n")
    described = run("topic", "describe", name, "--format", "json").json()[0]
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "start_offset": 0,
        "end_offset": 3,
        "messages": 3,
    }
    text = run("topic", "describe", name).out
    assert f"topic {name}" in text
    assert "2 partitions, 3 messages" in text
    assert re.search(r"^max\.message\.bytes\s+12345\s+dynamic topic$", text, re.MULTILINE)
    assert re.search(r"^\s+1\s+1\s+1\s+1\s+0\s+3\s+3$", text, re.MULTILINE)


def test_a_missing_topic_is_told_with_the_name_that_may_be_meant(run: Run, topic: Topics) -> None:
    name = topic()
    missing = run("topic", "describe", name + "x")
    assert missing.code == 1
    assert f"topic '{name}x' does not exist on 127.0.0.1:" in missing.sentence
    assert "did you mean " in missing.sentence
    assert "see `penstock topic list`" in missing.sentence


def test_alter_sets_and_unsets(run: Run, topic: Topics) -> None:
    name = topic(config={"segment.ms": "1000000"})
    altered = run("topic", "alter", name, "-c", "retention.ms=5000", "--unset", "segment.ms")
    assert altered.out == f"altered 2 settings of topic {name}\n"
    configs = run("topic", "describe", name, "--format", "json").json()[0]["configs"]
    changed = {c["name"]: c["value"] for c in configs}
    assert changed["retention.ms"] == "5000"
    assert "segment.ms" not in changed


def test_alter_refuses_what_makes_no_sense(run: Run, topic: Topics) -> None:
    name = topic()
    nothing = run("topic", "alter", name)
    assert (nothing.code, nothing.sentence) == (
        2,
        "nothing to change: give -c KEY=VALUE or --unset KEY",
    )
    both = run("topic", "alter", name, "-c", "retention.ms=1", "--unset", "retention.ms")
    assert "both set and unset" in both.sentence
    assert "is not a topic setting" in run("topic", "alter", name, "-c", "retention.ms").sentence


def test_partitions_grow_and_never_shrink(run: Run, topic: Topics) -> None:
    name = topic(partitions=2)
    refused = run("topic", "add-partitions", name, "2")
    assert refused.sentence == (
        f"topic '{name}' has 2 partitions and can only grow: give a TOTAL above 2"
    )
    grown = run("topic", "add-partitions", name, "4")
    assert grown.out == f"topic {name} now has 4 partitions (before: 2)\n"
    assert {"topic": name, "partitions": 4, "replicas": 1} in run(
        "topic", "list", "--format", "json"
    ).json()


def test_trim_by_offset_by_count_and_by_time(run: Run, topic: Topics) -> None:
    name = topic(partitions=2)
    old = "".join(f'{{"value": "v", "timestamp": {1_700_000_000_000 + n}}}\n' for n in range(10))
    run("topic", "produce", name, "--partition", "0", "--input", "json", stdin=old)
    by_offset = run("topic", "trim", name, "--before-offset", "3", "--format", "json").json()
    assert by_offset[0] == {
        "topic": name,
        "partition": 0,
        "start_before": 0,
        "start_offset": 3,
        "dropped": 3,
    }
    assert by_offset[1]["dropped"] == 0
    by_time = run(
        "topic", "trim", name, "--before", "1700000000005", "--partition", "0", "--format", "json"
    )
    assert by_time.json()[0]["start_offset"] == 5
    table = run("topic", "trim", name, "--keep", "1").out.splitlines()
    assert table[1].split() == ["0", "5", "9", "4"]
    assert run("topic", "consume", name).out == "v\n"


def test_trim_wants_exactly_one_limit(run: Run, topic: Topics) -> None:
    name = topic()
    sentence = "give exactly one of --before-offset, --before and --keep"
    assert run("topic", "trim", name).sentence == sentence
    assert run("topic", "trim", name, "--keep", "1", "--before", "-1h").sentence == sentence
    assert (
        "has no partition 7"
        in run("topic", "trim", name, "--keep", "1", "--partition", "7").sentence
    )


def test_delete_wants_a_yes_from_somebody(run: Run, topic: Topics) -> None:
    first, second = topic(), topic()
    refused = run("topic", "delete", first)
    assert refused.code == 2
    assert refused.sentence.endswith("add --yes")
    gone = run("topic", "delete", first, second, "--yes")
    assert gone.out == f"deleted topic {first}\ndeleted topic {second}\n"
    left = {t["topic"] for t in run("topic", "list", "--format", "json").json()}
    assert not left & {first, second}
