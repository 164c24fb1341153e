"""One child process of a pipeline: started, listened to, signalled, and what its end means.

The child has a session of its own, so that Ctrl-C reaches the parent alone. Its stdin stays open
for as long as the parent lives. Its stdout, which is the pipeline's, and its events are read
together; Spark's Java may hold both pipes a moment longer than the child lives, so that the end of
the child counts, not theirs.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.spark.pipeline import job as words
from penstock.spark.pipeline.failure import Cause
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.state import Folder

POLL_S = 0.2
READ_BYTES = 65_536


class Ending(NamedTuple):
    """How a child ended."""

    code: int
    sentence: str | None = None
    cause: Cause = Cause.OTHER
    was_stopped: bool = False


class Lines:
    """Whole lines out of a pipe that is read in pieces."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take, self._rest = take, b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))

    def end(self) -> None:
        if self._rest:
            self.feed(b"\n")


class Child:
    """One process of a pipeline, from its start to its end."""

    def __init__(
        self,
        job: Job,
        folder: Folder,
        on_event: Callable[[str, dict[str, Any]], None],
        on_output: Callable[[str], None],
    ) -> None:
        self._on_event = on_event
        self._failed: dict[str, Any] = {}
        self._was_stopped = self._has_reported = False
        folder.roll_log()
        read_end, write_end = os.pipe()
        with folder.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.spark.pipeline.child", str(write_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[write_end],
                start_new_session=True,
            )
        os.close(write_end)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._events_fd = read_end
        self._lines = {
            read_end: Lines(self._event),
            self._process.stdout.fileno(): Lines(on_output),
        }
        with suppress(BrokenPipeError):  # it has died already, which `wait` finds out
            self._process.stdin.write(job.line())
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        """A signal to the child alone; SIGKILL to Spark's Java as well."""
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)

    def wait(self, on_tick: Callable[[], None]) -> Ending:
        """Passes everything on until the child has ended and all of it is read."""
        with selectors.DefaultSelector() as selector:
            for fd in self._lines:
                selector.register(fd, selectors.EVENT_READ)
            while self._process.poll() is None:
                self._read(selector, POLL_S)
                on_tick()
            while self._read(selector, 0.0):
                """What was said last."""
        for lines in self._lines.values():
            lines.end()
        return self._close()

    def _read(self, selector: selectors.BaseSelector, timeout_s: float) -> bool:
        """Takes what is there; tells whether there was anything."""
        found = False
        for key, _ in selector.select(timeout_s):
            if data := os.read(key.fd, READ_BYTES):
                found = True
                self._lines[key.fd].feed(data)
            else:
                selector.unregister(key.fd)
        return found

    def _close(self) -> Ending:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        os.close(self._events_fd)
        code = self._process.returncode
        if self._failed:
            return Ending(code, self._failed["sentence"], Cause(self._failed["cause"]))
        if code < 0:
            name = signal.Signals(-code).name
            return Ending(code, f"the pipeline's process was ended by {name}", Cause.CRASH)
        if code and not self._has_reported:
            # The exit code of a pipeline that ran is its own affair; this one never began.
            sentence = (
                f"the pipeline's process ended with exit code {code} before Spark had started"
            )
            return Ending(code, sentence)
        return Ending(code, was_stopped=self._was_stopped)

    def _event(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:  # cut off, when the child was killed
            return
        kind = event.pop("event")
        self._has_reported = True
        if kind == words.FAILED:
            self._failed = event
        elif kind == words.STOPPED:
            self._was_stopped = True
        self._on_event(kind, event)
