"""A pytest plugin that writes down each failure of a run, for `tools/suite.py`, which decides on
second chances: what failed, how, what its nodes logged, and how busy the machine was then.

The process that runs a test reads the machine, at the moment of the failure, and hands the reading
on with its report; only the process that the user started writes. A note is one JSON file in the
folder that `FAILURE_NOTES` names. Workers that crashed and files that could not be collected are
noted, too: they are failures that no second chance mends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import machine
from tools.second_chances import COLLECTION, CRASH, NOTES_VARIABLE, TEST

READING = "machine"
# What was captured of a test is cut to its end, where the failure is.
TEXT_CHARS_MAX = 20_000
# So xdist names the phase of a test whose worker died.
CRASHED_PHASE = "???"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ReadingAtFailure())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(os.environ[NOTES_VARIABLE])))


class ReadingAtFailure:
    """In each process that runs tests: adds a reading of the machine to what failed."""

    def __init__(self) -> None:
        self._before = machine.cpu_times()
        self._started = time.monotonic()

    def pytest_runtest_logstart(self) -> None:
        self._before = machine.cpu_times()
        self._started = time.monotonic()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        outcome: Any = yield
        report = outcome.get_result()
        if report.failed:
            seconds = time.monotonic() - self._started
            reading = machine.reading(self._before) | {"test_seconds": round(seconds, 1)}
            report.user_properties.append((READING, reading))


class Notes:
    """In the process that the user started: one file for each failure."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = machine.cpu_times()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            kind = CRASH if report.when == CRASHED_PHASE else TEST
            self._write(
                kind,
                report.nodeid,
                report,
                properties=dict(report.user_properties),
                worker=getattr(report, "worker_id", "master"),
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(COLLECTION, report.nodeid, report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Also of a worker that died between two tests, which xdist replaces without a failure."""
        if error:
            self._write(CRASH, f"worker {node.gateway.id}", None, text=str(error))

    def _write(
        self,
        kind: str,
        test: str,
        report: pytest.TestReport | pytest.CollectReport | None,
        *,
        text: str = "",
        properties: dict[str, Any] | None = None,
        worker: str = "master",
    ) -> None:
        found = properties or {}
        note = {
            "kind": kind,
            "test": test,
            "phase": getattr(report, "when", None),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "worker": worker,
            "machine": found.pop(READING, None) or machine.reading(self._before),
            "properties": {name: str(value) for name, value in found.items()},
            "reason": text or _reason(report),
            "failure": text or _end(report.longreprtext if report else ""),
            "logs": {name: _end(log) for name, log in report.sections} if report else {},
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self._folder.iterdir()))
        (self._folder / f"{number:04}.json").write_text(json.dumps(note, indent=1))


def _reason(report: Any) -> str:
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    text = crash.message if crash is not None else (report.longreprtext if report else "")
    lines = [line for line in str(text).splitlines() if line.strip()]
    return lines[0] if crash is not None and lines else (lines[-1] if lines else "")


def _end(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else "[...] " + text[-TEXT_CHARS_MAX:]
