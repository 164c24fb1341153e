"""`penstock topic produce` and `consume` against a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.errors import EXIT_INTERRUPTED
from support.helpers import eventually
from support.process import BrokerProcess

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK

Run = Callable[..., Any]
Names = Callable[[], str]
Topics = Callable[..., str]


def test_lines_go_in_and_come_out(run: Run, topic: Topics) -> None:
    name = topic()
    sent = run("topic", "produce", name, stdin="one\ntwo\r\n\nlast without an end")
    assert (sent.code, sent.out) == (0, "")
    assert sent.err.startswith(f"published 4 messages to {name} in ")
    assert run("topic", "consume", name).out == "one\ntwo\n\nlast without an end\n"


def test_keys_headers_timestamps_offsets_and_partitions_are_shown_when_asked(
    run: Run, topic: Topics
) -> None:
    name = topic()
    line = (
        '{"key": "k", "value": "v", "headers": {"h": "1", "i": null}, "timestamp": 1700000000123}\n'
    )
    run("topic", "produce", name, "--input", "json", stdin=line)
    flags = ("--key", "--headers", "--timestamp", "--offset", "--partition-numbers")
    shown = run("topic", "consume", name, *flags).out
    assert shown == "2023-11-14T22:13:20.123Z\t0\t0\th=1,i=null\tk\tv\n"


def test_key_and_value_by_a_separator(run: Run, topic: Topics) -> None:
    name = topic()
    sent = run(
        "topic",
        "produce",
        name,
        "--key-separator",
        "=>",
        "-H",
        "a=b",
        stdin="k=>v=>w\nnothing\nl=>\n",
    )
    assert sent.code == 1
    assert "line 2: there is no key separator '=>' in it" in sent.err
    assert "published 2 messages" in sent.err
    assert sent.err.rstrip().endswith(", 1 failed")
    found = run("topic", "consume", name, "--output", "json").json_lines()
    assert [(m["key"], m["value"], m["headers"]) for m in found] == [
        ("k", "v=>w", {"a": "b"}),
        ("l", "", {"a": "b"}),
    ]


def test_json_that_consume_writes_is_what_produce_reads(run: Run, topic: Topics) -> None:
    first, second = topic(), topic()
    lines = (
        '{"key": null, "value": "text", "timestamp": 1700000000000}\n'
        '{"key_base64": "/w==", "value": null, "timestamp": 1700000000001}\n'
        '{"key": "k", "value": {"n": 1}, "headers": [{"key": "a", "value": "1"}, {"key": "a"}],'
        ' "timestamp": 1700000000002}\n'
    )
    assert run("topic", "produce", first, "--input", "json", stdin=lines).code == 0
    written = run("topic", "consume", first, "--format", "json").out
    assert run("topic", "produce", second, "--input", "json", stdin=written).code == 0
    assert run("topic", "consume", second, "--format", "json").out == written.replace(first, second)


def test_what_would_be_a_tombstone_by_mistake_is_refused(run: Run, topic: Topics) -> None:
    name = topic()
    lines = '{"key": "k", "valeu": "v"}\n{"key": "k"}\n{"key": "k", "value": null}\n'
    sent = run("topic", "produce", name, "--input", "json", stdin=lines)
    assert sent.code == 1
    first, second, summary = sent.err.splitlines()
    assert first.startswith("line 1: it is not a JSON message (Object contains unknown field")
    assert "the fields are key, value, headers" in first
    assert second.startswith("line 2: it has no value: give value or value_base64")
    assert summary.startswith("published 1 message to ")
    assert run("topic", "consume", name, "--key").out == "k\tnull\n"


def test_an_interrupted_produce_says_how_much_is_published(
    run: Run, node: BrokerProcess, topic: Topics
) -> None:
    name = topic()
    argv = [*PENSTOCK, "topic", "produce", name, "-b", node.bootstrap]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as writer:
        assert writer.stdin is not None
        assert writer.stderr is not None
        writer.stdin.write(b"a\nb\nc\n")
        writer.stdin.flush()
        eventually(lambda: run("topic", "consume", name).out == "a\nb\nc\n")
        writer.send_signal(signal.SIGINT)
        assert writer.wait(COMMAND_SECONDS_MAX) == EXIT_INTERRUPTED
        told = writer.stderr.read().decode()
    assert told.startswith(f"published 3 messages to {name} in ")


def test_a_bad_json_line_is_named_and_the_others_go_on(run: Run, topic: Topics) -> None:
    name = topic()
    sent = run(
        "topic",
        "produce",
        name,
        "--input",
        "json",
        "--format",
        "json",
        stdin='{"value":"a"}\nx\n\n{"value":"b"}\n',
    )
    assert sent.code == 1
    assert sent.err.startswith("line 2: it is not a JSON message")
    result = sent.json(code=1)
    assert (result["published"], result["failed"]) == (2, 1)
    assert run("topic", "consume", name).out == "a\nb\n"


def test_a_message_that_the_broker_refuses_is_reported_with_its_line(
    run: Run, topic: Topics
) -> None:
    name = topic(config={"max.message.bytes": "1000"})
    sent = run("topic", "produce", name, stdin="small\n" + "x" * 5000 + "\n")
    assert sent.code == 1
    assert "line 2: " in sent.err
    assert "too large" in sent.err.lower()


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_and_acks(run: Run, topic: Topics, compression: str) -> None:
    name = topic()
    for acks in ("0", "1", "all"):
        options = ("--compression", compression, "--acks", acks)
        assert run("topic", "produce", name, *options, stdin="same\n" * 100).code == 0
    eventually(lambda: run("topic", "consume", name).out == "same\n" * 300)


def test_a_file_is_read(run: Run, topic: Topics, tmp_path: Path) -> None:
    name = topic()
    file = tmp_path / "messages"
    file.write_bytes(b"\xff\xfe\n")
    assert run("topic", "produce", name, "--file", str(file)).code == 0
    found = run("topic", "consume", name, "--output", "json").json_lines()
    assert found[0]["value_base64"] == "//4="
    missing = run("topic", "produce", name, "--file", str(tmp_path / "none"))
    assert (
        missing.sentence
        == f"cannot read {tmp_path / 'none'}: no such file or directory; check --file"
    )


def test_a_topic_is_made_only_when_asked(run: Run, topic_name: Names) -> None:
    name = topic_name()
    refused = run("topic", "produce", name, stdin="x\n")
    assert refused.code == 1
    assert refused.sentence.endswith(
        f"make it with `penstock topic create {name}`, or add --create"
    )
    assert run("topic", "produce", name, "--create", stdin="x\n").code == 0
    assert run("topic", "consume", name).out == "x\n"
    assert "does not exist" in run("topic", "consume", name + "-other").sentence


def test_where_to_begin_and_where_to_stop(run: Run, topic: Topics) -> None:
    name = topic()
    base = 1_700_000_000_000
    lines = "".join(f'{{"value": "{n}", "timestamp": {base + n * 1000}}}\n' for n in range(10))
    run("topic", "produce", name, "--input", "json", stdin=lines)

    def values(*options: str) -> str:
        ended = run("topic", "consume", name, *options)
        assert ended.code == 0, ended
        return "".join(ended.out.split())

    assert values() == "0123456789"
    assert values("--from", "7") == "789"
    assert values("--from", "-2") == "89"
    assert values("--from", "end", "--no-follow") == ""
    assert values("--from", str(base + 8000)) == "89"
    assert values("--from", "2023-11-14T22:13:28Z") == "89"
    assert values("--from", "-1h") == ""
    assert values("--from", "2", "--to", "4") == "23"
    assert values("--to", str(base + 2500)) == "012"
    assert values("--to", "-8") == "01"
    assert values("--count", "3") == "012"
    assert values("--from", "100") == ""


def test_one_partition_is_read_when_asked(run: Run, topic: Topics) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        run("topic", "produce", name, "--partition", str(partition), stdin=f"in {partition}\n")
    assert run("topic", "consume", name, "--partition", "1").out == "in 1\n"
    assert sorted(run("topic", "consume", name).out.splitlines()) == ["in 0", "in 1", "in 2"]
    assert run("topic", "consume", name, "--partition", "3").sentence == (
        f"topic '{name}' has no partition 3: give --partition from 0 to 2"
    )


def test_raw_is_the_bytes_alone(run: Run, topic: Topics) -> None:
    name = topic()
    run("topic", "produce", name, stdin="a\nb\n")
    assert run("topic", "consume", name, "--output", "raw").out == "ab"


def test_following_prints_what_comes_and_ends_quietly(
    node: BrokerProcess, run: Run, topic: Topics, tmp_path: Path
) -> None:
    name = topic()
    run("topic", "produce", name, stdin="before\n")
    out = tmp_path / "out"
    command = [*PENSTOCK, "topic", "consume", name, "--follow", "-b", node.bootstrap]
    with (
        out.open("wb") as stdout,
        subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE) as reader,
    ):
        eventually(lambda: out.read_text() == "before\n")
        run("topic", "produce", name, stdin="after\n")
        eventually(lambda: out.read_text() == "before\nafter\n")
        reader.send_signal(signal.SIGINT)
        _, err = reader.communicate(timeout=30)
    assert (reader.returncode, err) == (0, b"")


def test_a_closed_pipe_ends_quietly(node: BrokerProcess, run: Run, topic: Topics) -> None:
    name = topic()
    run("topic", "produce", name, stdin="a line that fills pipes\n" * 20_000)
    command = [*PENSTOCK, "topic", "consume", name]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": node.bootstrap},
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"a line that fills pipes\n"
        reader.stdout.close()
        err = reader.stderr.read()
        assert reader.wait(30) == 0
    assert err == b""
