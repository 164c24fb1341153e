"""The command line as people and scripts run it: a child process, its output, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from support.process import BrokerProcess

COMMAND_SECONDS_MAX = 60
PENSTOCK = [sys.executable, "-m", "penstock.cli"]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self, code: int = 0) -> Any:
        """The one JSON document on stdout of a command that ended with `code`."""
        assert self.code == code, self
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def sentence(self) -> str:
        """The error, which must be one line without a traceback."""
        assert self.code != 0, self
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: "), self.err
        return lines[0].removeprefix("error: ")


Run = Callable[..., Ended]


@pytest.fixture
def run_at() -> Run:
    """Runs `penstock ARGS` with a bootstrap address in the environment."""

    def run(bootstrap: str, *args: str, stdin: str | bytes = b"") -> Ended:
        return run_with({"PENSTOCK_BOOTSTRAP": bootstrap}, *args, stdin=stdin)

    return run


def run_with(
    environment: Mapping[str, str],
    *args: str,
    stdin: str | bytes = b"",
    seconds_max: float = COMMAND_SECONDS_MAX,
) -> Ended:
    """Runs `penstock ARGS` with these variables above those of the environment."""
    done = subprocess.run(
        [*PENSTOCK, *args],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=seconds_max,
        env={**os.environ, **environment},
        check=False,
    )
    ended = Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in ended.err, ended.err
    return ended


@pytest.fixture
def run(node: BrokerProcess, run_at: Run) -> Run:
    """Runs `penstock ARGS` against the shared broker."""
    return lambda *args, **options: run_at(node.bootstrap, *args, **options)
