"""Every way to get a command wrong ends in one sentence and an exit code that tells which."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli.options import TIMEOUT_S_DEFAULT
from support.process import free_port

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("topc",), "no such command 'topc' (did you mean 'topic'?); see `penstock --help`"),
        (
            ("topic", "lst"),
            "no such command 'lst' (did you mean 'list'?); see `penstock topic --help`",
        ),
        (
            ("topic", "list", "--fromat", "json"),
            "no such option: --fromat (did you mean --format?); see `penstock topic list --help`",
        ),
        (
            ("topic", "list", "--format", "xml"),
            "invalid value for '--format': 'xml' is not one of 'text', 'json';"
            " see `penstock topic list --help`",
        ),
        (("topic", "create"), "missing argument 'NAME'; see `penstock topic create --help`"),
        (
            ("topic", "consume", "t", "--follow", "--to", "5"),
            "--follow and --to exclude each other: keep one of them",
        ),
        (
            ("topic", "list", "-b", "nowhere:port"),
            "'nowhere:port' is not an address: write --bootstrap HOST:PORT",
        ),
        (
            ("cluster", "reassign", "--plan", "f", "--replication-factor", "2"),
            "--plan excludes --topic and --replication-factor: the file says all",
        ),
        (
            ("cluster", "drain", "3"),
            "draining node 3 needs a yes: nobody is here to ask, so add --yes",
        ),
        (
            ("topic", "create", "t", "--config", "cleanup.policy=compact"),
            "--config names a file: give a setting of the client with -X KEY=VALUE, one of a topic"
            " with -c KEY=VALUE",
        ),
        (("topic", "produce", "t", "-H", "x"), "'x' is not a header: write it as key=value"),
        (
            ("bench", "produce", "--message-bytes", "many"),
            "'many' is not a size: write a number of bytes such as 100, 16K or 1M",
        ),
    ],
)
def test_a_wrong_command_line(run_at: Run, args: tuple[str, ...], sentence: str) -> None:
    ended = run_at("127.0.0.1:1", *args)
    assert (ended.code, ended.sentence, ended.out) == (2, sentence, "")


@pytest.mark.parametrize("number", ["x", "0", "-1", "1.5"])
def test_a_bad_number_is_refused_with_the_option(run_at: Run, number: str) -> None:
    ended = run_at("127.0.0.1:1", "topic", "create", "t", "--partitions", number)
    assert ended.code == 2
    assert "'--partitions'" in ended.sentence


def test_a_bad_place_is_refused_with_the_forms(run_at: Run) -> None:
    ended = run_at("127.0.0.1:1", "topic", "consume", "t", "--from", "noon")
    assert ended.code == 2
    assert ended.sentence.startswith(
        "'noon' is not a place in a topic: write beginning, end, an offset"
    )


@pytest.mark.parametrize(
    "args",
    [
        ("topic", "list"),
        ("topic", "create", "t"),
        ("topic", "consume", "t"),
        ("bench", "latency"),
        ("cluster", "status"),
        ("cluster", "drain", "1", "--yes"),
    ],
)
def test_a_refused_connection_is_told_at_once(run_at: Run, args: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    started = time.monotonic()
    ended = run_at(address, *args)
    assert time.monotonic() - started < TIMEOUT_S_DEFAULT
    assert ended.code == 1
    assert ended.sentence == (
        f"cannot reach a broker at {address} (connection refused): start one with `penstock serve`,"
        " or name another with --bootstrap HOST:PORT"
    )


def test_a_listener_that_never_answers_is_told_within_the_timeout(run_at: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        started = time.monotonic()
        ended = run_at(address, "topic", "list", "--timeout", "1")
        assert time.monotonic() - started < TIMEOUT_S_DEFAULT
    assert ended.code == 1
    assert ended.sentence == (
        f"cannot list topics: no answer from {address} within 1 s; check that a Kafka listener is"
        " at that address, or wait longer with --timeout"
    )


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("--set", "num.partitons=3"), "num.partitons"),
        (("--set", "num.partitions=none"), "num.partitions"),
        (("--set", "novalue"), "write KEY=VALUE"),
        (("--config", "/nonexistent/penstock.toml"), "/nonexistent/penstock.toml"),
        (("--listen", "9092"), "listeners"),
    ],
)
def test_serve_refuses_bad_settings(run_at: Run, args: tuple[str, ...], part: str) -> None:
    ended = run_at("127.0.0.1:1", "serve", *args)
    assert ended.code == 2
    assert part in ended.sentence


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("topic",),
        ("bench",),
        ("cluster",),
        ("serve",),
        ("dev",),
        ("topic", "consume"),
        ("bench", "produce"),
        ("cluster", "reassign"),
    ],
)
def test_every_command_has_help(run_at: Run, args: tuple[str, ...]) -> None:
    ended = run_at("127.0.0.1:1", *args, "--help")
    assert ended.code == 0
    assert ended.out.startswith(" ".join(("Usage: penstock", *args)))
    assert ended.err == ""
