"""What the parent does about a child that ends, with children that end as they are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipeline import state, supervise
from penstock.spark.pipeline.failure import Cause
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.process import Child, Ending
from penstock.spark.pipeline.state import Folder, Run
from penstock.spark.pipeline.supervise import Supervisor

JOB = Job("words", "/p/pipeline.py", False, {}, "local[2]", {})
PROGRESS = {"query": "words", "batch": 1}
CRASH = Ending(1, "it broke", Cause.CRASH)
OTHER = Ending(1, "who knows", Cause.OTHER)


class Shown:
    """A view that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def progress(self, line: dict[str, Any]) -> None:
        self.notes.append("progress")

    def working(self, line: dict[str, Any]) -> None:
        self.notes.append("working")

    def note(self, event: str, text: str, **more: Any) -> None:
        self.notes.append(event)

    def output(self, line: str) -> None: ...


class Play:
    """Children that end one after the other as the script says; the first few make progress."""

    def __init__(self, script: list[Ending], with_progress: int = 0) -> None:
        self.script, self.with_progress = list(script), with_progress
        self.sent: list[int] = []
        self.during: Callable[[], None] = lambda: None

    def __call__(self, job: Job, folder: Folder, on_event: Any, on_output: Any) -> Play:
        assert job == JOB
        self._on_event = on_event
        return self

    pid = 4_000_000

    def send(self, number: int) -> None:
        self.sent.append(number)

    def wait(self, on_tick: Callable[[], None]) -> Ending:
        self._on_event("started", {"version": "4.3"})
        if self.with_progress > 0:
            self.with_progress -= 1
            self._on_event("progress", dict(PROGRESS))
        self.during()
        on_tick()
        return self.script.pop(0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(supervise, "BACKOFF_FIRST_S", 0.01)
    found = Folder("words")
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    with found.held():
        yield found
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(
    play: Play, folder: Folder, monkeypatch: pytest.MonkeyPatch, restarts: int | None = None
) -> tuple[int, Run, list[str]]:
    monkeypatch.setattr(supervise, "Child", play)
    shown = Shown()
    code = Supervisor(JOB, folder, shown, restarts).run()
    left = folder.run()
    assert left is not None
    return code, left, shown.notes


def test_a_crash_is_followed_by_another_start(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play([CRASH, CRASH, Ending(7)], with_progress=1)
    code, left, notes = run(play, folder, monkeypatch)
    assert (code, left.status, left.exit_code, left.restarts) == (7, state.DONE, 7, 2)
    assert left.last_error == "it broke"
    begun = ["starting", "started"]
    assert notes == [*begun, "progress", "restart", *begun, "restart", *begun, "done"]
    assert folder.progress() == {"words": PROGRESS}


def test_restarts_have_an_end(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    code, left, notes = run(Play([CRASH, CRASH]), folder, monkeypatch, restarts=1)
    assert (code, left.status, left.restarts, notes[-1]) == (1, state.FAILED, 1, "failed")


def test_what_never_worked_is_not_tried_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, left, _ = run(Play([OTHER]), folder, monkeypatch)
    assert (code, left.status, left.restarts, left.last_error) == (1, state.FAILED, 0, "who knows")
    _, left, _ = run(Play([OTHER, Ending(0)], with_progress=1), folder, monkeypatch)
    assert (left.status, left.restarts) == (state.DONE, 1)


def test_the_first_signal_asks_and_the_second_kills(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play([Ending(0, was_stopped=True)])
    play.during = lambda: signal.raise_signal(signal.SIGINT)
    code, left, notes = run(play, folder, monkeypatch)
    assert (code, left.status, play.sent) == (0, state.STOPPED, [signal.SIGTERM])
    assert notes[-2:] == ["stopping", "stopped"]

    class Stubborn(Play):
        def wait(self, on_tick: Callable[[], None]) -> Ending:
            signal.raise_signal(signal.SIGTERM)
            on_tick()
            return super().wait(on_tick)

    stubborn = Stubborn([Ending(-signal.SIGKILL, "was ended by SIGKILL", Cause.CRASH)])
    stubborn.during = lambda: signal.raise_signal(signal.SIGTERM)
    code, left, _ = run(stubborn, folder, monkeypatch)
    assert (code, left.status) == (supervise.EXIT_KILLED, state.STOPPED)
    assert stubborn.sent == [signal.SIGTERM, signal.SIGKILL]


def test_a_child_that_is_stopped_before_it_listens(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Play([Ending(-signal.SIGTERM, "was ended by SIGTERM", Cause.CRASH)])
    play.during = lambda: signal.raise_signal(signal.SIGINT)
    code, left, notes = run(play, folder, monkeypatch)
    assert (code, left.status, notes[-1]) == (0, state.STOPPED, "stopped")


def act_as_child(lines: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Children run these lines of Python instead of a pipeline."""
    program = tmp_path / "child"
    program.write_text(f"#!{sys.executable}\nimport os, sys\n{lines}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_child_that_is_killed_while_it_reports(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = 'os.write(int(sys.argv[3]), b\'{"event": "pro\')'
    act_as_child(f"{report}\nos.kill(os.getpid(), 9)", monkeypatch, tmp_path)
    events: list[str] = []
    child = Child(JOB, folder, lambda kind, _: events.append(kind), print)
    assert child.wait(lambda: None).cause is Cause.CRASH
    assert events == []


def test_a_child_that_fails_before_it_can_report_has_failed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    act_as_child("import no_such_module", monkeypatch, tmp_path)
    ending = Child(JOB, folder, lambda *_: None, print).wait(lambda: None)
    assert ending.code == 1
    assert ending.sentence is not None
    assert "exit code 1 before Spark had started" in ending.sentence
    assert "no_such_module" in folder.log_path.read_text()


def test_the_exit_code_of_a_pipeline_that_ran_is_no_failure(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = 'os.write(int(sys.argv[3]), b\'{"event": "started"}\\n\')'
    act_as_child(f"{started}\nsys.exit(3)", monkeypatch, tmp_path)
    ending = Child(JOB, folder, lambda *_: None, print).wait(lambda: None)
    assert (ending.code, ending.sentence) == (3, None)


def test_no_argument_of_the_command_is_kept(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["penstock", "--set", "kafka.sasl.password=hush"])
    run(Play([Ending(0)]), folder, monkeypatch)
    assert not [p for p in folder.path.iterdir() if b"hush" in p.read_bytes()]


def test_a_signal_ends_the_pause(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "BACKOFF_FIRST_S", 1000.0)
    monkeypatch.setattr(supervise, "BACKOFF_MAX_S", 1000.0)
    sleep = supervise.time.sleep

    def interrupted(seconds: float) -> None:
        signal.raise_signal(signal.SIGTERM)
        sleep(seconds)

    monkeypatch.setattr(supervise.time, "sleep", interrupted)
    code, left, notes = run(Play([CRASH]), folder, monkeypatch)
    assert (code, left.status, notes[-1]) == (0, state.STOPPED, "stopped")


def test_the_child_of_a_killed_parent_is_waited_for(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [sys.executable, "-c", "input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True) as orphan:
        born = state.born(orphan.pid)
        before = Run("words", 4_000_000, "p", "local", 1, child_pid=orphan.pid, child_born=born)
        folder.write_run(before)
        monkeypatch.setattr(supervise, "STOP_S_MAX", 0.2)
        sleep = supervise.time.sleep
        pids: set[tuple[int, int | None]] = set()

        def look(seconds: float) -> None:
            waiting = folder.run()
            assert waiting is not None
            pids.add((waiting.pid, waiting.child_pid))
            sleep(seconds)

        monkeypatch.setattr(supervise.time, "sleep", look)
        _, _, notes = run(Play([Ending(0)]), folder, monkeypatch)
        assert notes == ["waiting", "starting", "started", "done"]
        assert pids == {(os.getpid(), orphan.pid)}, "whoever stops it while it waits finds it"
        assert orphan.wait(10) == -signal.SIGKILL
    folder.write_run(before)
    _, _, notes = run(Play([Ending(0)]), folder, monkeypatch)
    assert notes == ["starting", "started", "done"], "the number alone does not count"
