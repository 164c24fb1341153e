"""The node's log: its two forms, its behaviour when stderr is not read, its alarms."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.observe import logs
from penstock.observe.logs import Alarm, LogWriter, set_level, set_up_logging

DEADLINE_S = 10.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _keep_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(form: str, *, stream: io.StringIO | None = None, level: str = "info") -> str:
    stream = stream or io.StringIO()
    writer = set_up_logging(level=level, form=form, stream=stream)
    log = logging.getLogger("penstock.test")
    log.debug("hidden")
    log.warning("the disk %s", "is full", extra={"topic": "a b", "partition": 3, "empty": ""})
    try:
        raise OSError("no space")
    except OSError:
        log.exception("it failed")
    writer.close()
    return stream.getvalue()


def test_text_is_aligned_and_carries_fields() -> None:
    first, second, *traceback = logged("text").splitlines()
    stamp, rest = first.split(" ", 1)
    assert stamp.endswith("Z")
    assert time.time() - 60 < _seconds(stamp) < time.time() + 60
    assert rest == "WARNING  penstock.test: the disk is full topic='a b' partition=3 empty=''"
    assert second.endswith("ERROR    penstock.test: it failed")
    assert traceback[-1] == "OSError: no space"


def _seconds(stamp: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp()


def test_colour_is_only_for_a_terminal() -> None:
    assert "\x1b" not in logged("text")
    assert "\x1b[33mWARNING \x1b[0m penstock.test" in logged("text", stream=Terminal())
    assert "\x1b" not in logged("json", stream=Terminal())


def test_json_is_one_object_per_line() -> None:
    first, second = (json.loads(line) for line in logged("json").splitlines())
    del first["time"]
    assert first == {
        "level": "WARNING",
        "logger": "penstock.test",
        "message": "the disk is full",
        "topic": "a b",
        "partition": 3,
        "empty": "",
    }
    assert second["exception"].endswith("OSError: no space")


def test_what_a_client_sent_cannot_forge_a_line() -> None:
    for form in ("text", "json"):
        stream = io.StringIO()
        writer = set_up_logging(level="info", form=form, stream=stream)
        evil = "x\n2026-01-01T00:00:00.000Z ERROR forged"
        logging.info("client %s", evil, extra={"client": evil, "level": "forged"})
        writer.close()
        assert len(stream.getvalue().splitlines()) == 1
        assert form == "text" or json.loads(stream.getvalue())["level"] == "INFO"


def test_the_level_can_be_changed_while_running() -> None:
    stream = io.StringIO()
    writer = set_up_logging(level="error", form="text", stream=stream)
    logging.info("first")
    set_level("debug")
    logging.debug("second")
    writer.close()
    assert "first" not in stream.getvalue()
    assert "second" in stream.getvalue()


def test_a_value_that_json_cannot_carry_is_written_as_text() -> None:
    stream = io.StringIO()
    writer = set_up_logging(level="info", form="json", stream=stream)
    logging.info("m", extra={"id": b"\x00"})
    writer.close()
    assert json.loads(stream.getvalue())["id"] == str(b"\x00")


def test_a_reader_that_stops_reading_costs_lines_but_never_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "QUEUED_LINES_MAX", 50)
    read_end, write_end = os.pipe()
    lines = 5_000
    with os.fdopen(read_end) as reader, os.fdopen(write_end, "w") as stream:
        writer = LogWriter(stream)
        writer.setFormatter(logs.JsonFormatter())
        log = logging.Logger("penstock.test")
        log.addHandler(writer)
        begin = time.monotonic()
        for i in range(lines):
            log.error("%d %s", i, "x" * 200)
        assert time.monotonic() - begin < DEADLINE_S
        assert writer.dropped > 0
        read, told = [], 0
        while len(read) + told < lines:
            line = json.loads(reader.readline())
            if line["logger"] == logs.__name__:
                told += line["lines"]
            else:
                read.append(int(line["message"].split()[0]))
        writer.close()
    assert told == writer.dropped
    assert read == sorted(read)


def test_a_closed_stderr_is_survived() -> None:
    code = (
        "import sys, os, logging; from penstock.observe.logs import set_up_logging;"
        "os.close(2); w = set_up_logging(level='info', form='text', stream=sys.stderr);"
        "logging.error('x'); w.close(); assert w.dropped == 1; print('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=30)
    assert done.stdout == b"done\n"


def alarm_log() -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    log = logging.Logger("penstock.test")
    log.addHandler(logging.StreamHandler(stream))
    log.handlers[0].setFormatter(logs.TextFormatter(colour=False))
    return log, stream


def test_an_alarm_that_repeats_is_logged_once_per_interval() -> None:
    log, stream = alarm_log()
    alarm = Alarm(log, interval_s=3600)
    for _ in range(100):
        alarm.raised("disk", "the disk is full", dir="data")
    alarm.raised("other", "something else")
    assert [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "the disk is full dir=data",
        "something else",
    ]


def test_an_alarm_says_how_often_it_was_silent() -> None:
    log, stream = alarm_log()
    alarm = Alarm(log, interval_s=0.05)
    alarm.raised("disk", "the disk is full")
    alarm.raised("disk", "the disk is full")
    alarm.raised("disk", "the disk is full")
    deadline = time.monotonic() + DEADLINE_S
    while "repeated" not in stream.getvalue():
        assert time.monotonic() < deadline
        alarm.raised("disk", "the disk is full")
    assert int(stream.getvalue().rsplit("repeated=", 1)[1]) >= 2


def test_alarms_remember_a_bounded_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ALARM_KEYS_MAX", 2)
    log, stream = alarm_log()
    alarm = Alarm(log, interval_s=3600)
    for key in ("a", "b", "c", "a"):
        alarm.raised(key, key)
    assert stream.getvalue().count(": a") == 2
