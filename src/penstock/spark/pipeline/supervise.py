"""The parent of a running pipeline: starts the child, passes on what it says, starts it again when
it fails, and stops it.

Duty: decides what an ended child means. One that failed by its own fault ends the run. One that
crashed, or lost its brokers, or failed after it had worked, is started again after a pause that
doubles from BACKOFF_FIRST_S to BACKOFF_MAX_S and is short again after QUIET_S without a failure.

The first SIGINT or SIGTERM asks the child to stop cleanly, the second kills it. Should the parent
be killed, the child's stdin ends and it stops by itself. One thread does everything; the signal
handler only counts.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from penstock.spark.pipeline import job as words
from penstock.spark.pipeline import state
from penstock.spark.pipeline.failure import Cause
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.process import Child, Ending
from penstock.spark.pipeline.state import Folder, Run

BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0
QUIET_S = 300.0
POLL_S = 0.1
STOP_S_MAX = words.BATCH_END_S_MAX + 30.0
"""How long a child may take to stop, once it was told, before it is killed."""
EXIT_FAILED = 1
EXIT_KILLED = 130
"""Ended by a second Ctrl-C, by the convention of shells."""


class View(Protocol):
    """Whoever shows a run."""

    def progress(self, line: dict[str, Any]) -> None: ...

    def working(self, line: dict[str, Any]) -> None: ...

    def note(self, event: str, text: str, **more: Any) -> None: ...

    def output(self, line: str) -> None: ...


def pause_s(failures: int) -> float:
    """How long to wait before the child is started again, after so many failures in a row."""
    doublings = min(failures - 1, 32)
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0**doublings)


def may_restart(ending: Ending, has_worked: bool) -> bool:
    """Whether another start can end otherwise."""
    if ending.cause in (Cause.CLUSTER, Cause.CRASH):
        return True
    return ending.cause is Cause.OTHER and has_worked


class Supervisor:
    """One run of a pipeline, whose folder is held by the caller."""

    def __init__(self, job: Job, folder: Folder, view: View, restarts_max: int | None) -> None:
        self._job, self._folder, self._view = job, folder, view
        self._restarts_max = restarts_max
        self._progress: dict[str, Any] = {}
        self._has_worked = False
        self._stops = self._heeded = 0
        self._told_at_s: float | None = None
        self._child: Child | None = None
        self._run = Run(
            name=folder.name,
            pid=os.getpid(),
            pid_born=state.born(os.getpid()),
            target=job.file,
            master=job.master,
            started_ms=_now_ms(),
        )

    def run(self) -> int:
        """Until the pipeline is done, stopped or beyond help; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        before = self._folder.run()
        self._folder.write_progress({})
        self._note(state.STARTING)
        self._let_go(before)
        failures = 0
        while not self._is_told_to_stop():
            begun_s = time.monotonic()
            ending = self._run_child()
            if ending.sentence is None:
                return self._ended(ending)
            if self._is_told_to_stop():
                return self._ended_when_told(ending)
            if time.monotonic() - begun_s > QUIET_S:
                failures = 0
            failures += 1
            is_last = self._restarts_max is not None and self._run.restarts >= self._restarts_max
            if is_last or not may_restart(ending, self._has_worked):
                return self._failed(ending)
            self._pause(ending.sentence, pause_s(failures))
            self._note(state.STARTING, restarts=self._run.restarts + 1)
        return self._ended(Ending(0, was_stopped=True))

    def _let_go(self, before: Run | None) -> None:
        """Waits for the child of a parent that was killed: it still ends its micro-batch."""
        if before is None or before.child_pid is None or before.child_born is None:
            return
        self._note(self._run.status, child_pid=before.child_pid, child_born=before.child_born)
        pid, until_s = before.child_pid, time.monotonic() + STOP_S_MAX
        if state.born(pid) == before.child_born:
            text = f"waits for process {pid} of the run before, which is still stopping"
            self._view.note("waiting", text)
        while state.born(pid) == before.child_born and not self._stops:
            if time.monotonic() > until_s:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                return
            time.sleep(POLL_S)

    def _run_child(self) -> Ending:
        self._view.note("starting", f"starts Spark, {self._job.master}", master=self._job.master)
        self._child = Child(self._job, self._folder, self._on_event, self._view.output)
        pid = self._child.pid
        self._note(self._run.status, child_pid=pid, child_born=state.born(pid))
        ending = self._child.wait(self._heed)
        self._child = None
        return ending

    def _pause(self, sentence: str, seconds: float) -> None:
        self._note(state.WAITING, last_error=sentence, child_pid=None)
        self._view.note(
            "restart",
            f"failed: {sentence}; starts again in {seconds:g} s",
            error=sentence,
            pause_s=seconds,
            restarts=self._run.restarts + 1,
        )
        until_s = time.monotonic() + seconds
        while not self._stops and time.monotonic() < until_s:
            time.sleep(POLL_S)

    def _ended(self, ending: Ending) -> int:
        """Stopped, or done by itself."""
        what = state.STOPPED if ending.was_stopped or self._is_told_to_stop() else state.DONE
        self._note(what, child_pid=None, exit_code=ending.code, ended_ms=_now_ms())
        self._view.note(what, what, exit_code=ending.code)
        return ending.code

    def _ended_when_told(self, ending: Ending) -> int:
        """Not as a child ends that stops cleanly."""
        if ending.code == -signal.SIGTERM:  # it was told before it could listen
            return self._ended(Ending(0, was_stopped=True))
        return self._killed() if ending.code == -signal.SIGKILL else self._failed(ending)

    def _killed(self) -> int:
        text = "was killed before its micro-batch was done; the next run repeats that"
        self._note(state.STOPPED, child_pid=None, exit_code=EXIT_KILLED, ended_ms=_now_ms())
        self._view.note(state.STOPPED, text, exit_code=EXIT_KILLED)
        return EXIT_KILLED

    def _failed(self, ending: Ending) -> int:
        code = ending.code if ending.code > 0 else EXIT_FAILED
        self._note(
            state.FAILED,
            last_error=ending.sentence,
            child_pid=None,
            exit_code=code,
            ended_ms=_now_ms(),
        )
        log = str(self._folder.log_path)
        self._view.note("failed", f"{ending.sentence} (log: {log})", error=ending.sentence, log=log)
        return code

    def _note(self, status: str, **changes: Any) -> None:
        self._run = replace(self._run, status=status, **changes)
        self._folder.write_run(self._run)

    def _on_event(self, kind: str, event: dict[str, Any]) -> None:
        if kind == words.STARTED:
            self._note(state.RUNNING)
            self._view.note(
                "started", f"runs on Spark {event['version']}, {self._job.master}", **event
            )
        elif kind == words.PROGRESS:
            self._has_worked = True
            self._progress[event["query"]] = event
            self._folder.write_progress(self._progress)
            self._view.progress(event)
        elif kind == words.WORKING:
            self._view.working(event)
        elif kind == words.FLOW:
            self._view.note("flow", event["message"])

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._stops += 1

    def _is_told_to_stop(self) -> bool:
        return self._stops > 0

    def _heed(self) -> None:
        """Now and then: what signals mean for the child (first end your batch, then end at once),
        and whether its log has become too large.
        """
        assert self._child is not None
        self._folder.roll_log()
        now_s = time.monotonic()
        if self._stops > self._heeded:
            self._heeded = self._stops
            if self._told_at_s is None:
                self._told_at_s = now_s
                self._note(state.STOPPING)
                self._view.note("stopping", "stops when the running micro-batch is done")
                self._child.send(signal.SIGTERM)
            else:
                self._child.send(signal.SIGKILL)
        if self._told_at_s is not None and now_s - self._told_at_s > STOP_S_MAX:
            self._child.send(signal.SIGKILL)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
