"""State folders, progress, failures and when to start again; no Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.kafka.errors import ClusterError
from penstock.spark.errors import OptionError
from penstock.spark.pipeline import state
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.failure import SENTENCE_CHARS_MAX, Cause, of_exception, of_text
from penstock.spark.pipeline.process import Ending, Lines
from penstock.spark.pipeline.progress import rows_behind, summary
from penstock.spark.pipeline.state import Folder, Run
from penstock.spark.pipeline.supervise import BACKOFF_MAX_S, may_restart, pause_s

PROGRESS = {
    "id": "0ac4df16-574f-423e-bfd2-bf28b8c0a7b5",
    "name": "words",
    "timestamp": "2026-01-31T12:00:00.500Z",
    "batchId": 7,
    "durationMs": {"triggerExecution": 350},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 1000},
        {"numRowsTotal": 2, "memoryUsedBytes": 24},
    ],
    "sources": [
        {
            "numInputRows": 100,
            "processedRowsPerSecond": 285.71,
            "endOffset": {"offsets": {"t": {"0": 60, "1": 40}}, "start": {"t": {"0": 0}}},
            "latestOffset": {"offsets": {"t": {"0": 61, "1": 50, "2": 3}}},
        }
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))
    return Folder("words")


def a_run(**changes: object) -> Run:
    found = Run("words", os.getpid(), "pipeline.py", "local[2]", 1, status=state.RUNNING)
    return replace(found, **changes)  # type: ignore[arg-type]


def test_where_the_state_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", "/a")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    assert state.state_dir() == Path("/a")
    monkeypatch.delenv("PENSTOCK_STATE_DIR")
    assert state.state_dir() == Path("/b/penstock")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state.state_dir() == Path.home() / ".local" / "state" / "penstock"


def test_a_run_without_its_lock_has_crashed(folder: Folder) -> None:
    assert folder.run() is None
    with folder.held():
        folder.write_run(a_run(child_pid=12))
        assert folder.is_held()
        assert folder.run() == a_run(child_pid=12)
        assert [f.name for f in state.folders()] == ["words"]
    assert not folder.is_held()
    run = folder.run()
    assert run is not None
    assert (run.status, run.child_pid) == (state.CRASHED, 12)
    folder.write_run(a_run(status=state.DONE, exit_code=0))
    assert folder.run() == a_run(status=state.DONE, exit_code=0)


def test_two_runs_of_one_name_are_refused(folder: Folder) -> None:
    program = (
        "import sys\nfrom penstock.spark.pipeline.state import Folder\n"
        "with Folder('words').held():\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        folder.write_run(a_run(pid=other.pid))
        with pytest.raises(PipelineError, match=f"runs already \\(process {other.pid}\\): stop it"):
            folder.held().__enter__()
        other.kill()
    with folder.held():
        assert folder.is_held()


def test_processes_are_told_apart_by_their_birth() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert state.born(other.pid) == state.born(other.pid) != state.born(os.getpid())
        other.kill()
    assert state.born(other.pid) is None


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".x", "a b", "x" * 129])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(PipelineError, match="is no name for a pipeline"):
        Folder(name)


def test_a_torn_file_is_no_run(folder: Folder) -> None:
    with folder.held():
        (folder.path / "run.json").write_text('{"name": "wor')
        assert folder.run() is None
        assert folder.progress() == {}


def test_a_log_is_kept_from_growing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LOG_BYTES_MAX", 10)
    with folder.held():
        folder.roll_log()
        folder.log_path.write_text("short")
        folder.roll_log()
        assert folder.log_path.exists()
        with folder.log_path.open("a") as child:
            child.write(" and longer")
            child.flush()
            folder.roll_log()
            child.write("more")
        assert folder.log_path.read_text() == "more", "whoever has it open goes on in it"
        assert (folder.path / "log.1").read_text() == "short and longer"


def test_progress_is_boiled_down() -> None:
    assert summary(PROGRESS) == {
        "query": "words",
        "id": PROGRESS["id"],
        "batch": 7,
        "time_ms": 1769860800500,
        "rows": 100,
        "rows_per_s": 285.7,
        "batch_ms": 350,
        "lag_rows": 1 + 10 + 3,
        "state_rows": 7,
        "state_bytes": 1024,
    }
    bare = summary({"id": "0ac4df16-574f", "sources": [{"description": "rate"}]})
    assert (bare["query"], bare["lag_rows"], bare["rows"]) == ("0ac4df16", None, 0)


def test_rows_behind_in_other_forms() -> None:
    text = {"endOffset": '{"t": {"0": 5}}', "latestOffset": '{"t": {"0": 7}}'}
    assert rows_behind(text) == 2
    assert rows_behind({"endOffset": "17", "latestOffset": "18"}) is None
    assert rows_behind({"endOffset": None, "latestOffset": {"offsets": {"t": {"0": 3}}}}) == 3


WRAPPED = """[STREAM_FAILED] Query [id = 1] ended by: [PYTHON_DATA_SOURCE_ERROR] Failed
Traceback (most recent call last):
  File "x.py", line 1, in y
penstock.spark.{name}: {text}
 SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("errors.OptionError", "unknown option x", Cause.OWN),
        ("errors.DataLossError", "topic t partition 0 is gone", Cause.OWN),
        ("errors.ClusterError", "topic t does not exist on h:1; make it", Cause.OWN),
        ("errors.ClusterError", "no broker answers (refused)", Cause.CLUSTER),
        ("security.SecurityError", "h:1 and user 'u' do not agree", Cause.OWN),
        ("producer.Fenced", "the transaction of 'q-0' is no longer this task's", Cause.OTHER),
    ],
)
def test_the_innermost_sentence_is_told(name: str, text: str, cause: Cause) -> None:
    assert of_text(WRAPPED.format(name=name, text=text)) == (text, cause)


def test_failures_of_other_kinds() -> None:
    user = "Job aborted\nTraceback (most recent call last):\n  File x\nKeyError: 'a'\n at java\n"
    assert of_text(user) == ("KeyError: 'a'", Cause.OTHER)
    assert of_text("Python worker failed to connect back.").cause is Cause.CRASH
    assert of_text("[DIVIDE_BY_ZERO] Division. SQLSTATE: 22012\nmore").sentence == (
        "[DIVIDE_BY_ZERO] Division."
    )
    assert len(of_text("x" * 5000).sentence) == SENTENCE_CHARS_MAX


def test_an_error_in_the_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text("def pipeline():\n    return {}['a']\n")
    space: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    with pytest.raises(KeyError) as raised:
        space["pipeline"]()  # type: ignore[operator]
    assert of_exception(raised.value, file) == (f"{file}:2: KeyError: 'a'", Cause.OTHER)
    assert of_exception(OptionError("no"), file) == ("no", Cause.OWN)
    assert of_exception(ClusterError("no broker answers"), file).cause is Cause.CLUSTER


def test_what_is_started_again_and_when() -> None:
    assert [pause_s(n) for n in (1, 2, 3, 7, 1000)] == [1, 2, 4, BACKOFF_MAX_S, BACKOFF_MAX_S]
    for cause in (Cause.CRASH, Cause.CLUSTER):
        assert may_restart(Ending(1, "x", cause), has_worked=False)
    assert may_restart(Ending(1, "x", Cause.OTHER), has_worked=True)
    assert not may_restart(Ending(1, "x", Cause.OTHER), has_worked=False)
    assert not may_restart(Ending(1, "x", Cause.OWN), has_worked=True)


def test_lines_come_whole() -> None:
    found: list[str] = []
    lines = Lines(found.append)
    for piece in (b"a", b"b\nc", b"\n\nlast"):
        lines.feed(piece)
    assert found == ["ab", "c", ""]
    lines.end()
    assert found == ["ab", "c", "", "last"]
