"""What `penstock pipeline` shows, and the options that ready pipelines have by signature."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from penstock.cli.app import run
from penstock.cli.errors import EXIT_USAGE
from penstock.cli.options import Format
from penstock.cli.pipeline import run as run_verb
from penstock.cli.pipeline import view
from penstock.cli.pipeline.live_view import LiveView
from penstock.cli.pipeline.options import RunOptions
from penstock.cli.pipeline.ready import ready_command
from penstock.cli.pipeline.run import default_name
from penstock.cli.pipeline.view import progress_text, view_for
from penstock.kafka.profiles import Profiles
from penstock.spark.pipeline import project, state
from penstock.spark.pipeline.project import find
from penstock.spark.pipeline.state import Folder, Run

LINE = {
    "query": "words",
    "batch": 7,
    "rows": 1200,
    "rows_per_s": 3456.7,
    "batch_ms": 350,
    "lag_rows": 12,
    "state_rows": 1000,
    "state_bytes": 2048,
}
WORK = {"tasks_done": 3, "tasks": 8, "seconds": 4.0}
READY = '''
"""Copies a topic.

More about it.
"""
def pipeline(spark, *, topic: Annotated[str, "topic to read"], name: str = "x",
             checkpoint: Annotated[str, "folder of progress"],
             rows_max: Annotated[int, "at most"] = 5, deep: Annotated[bool, "look deep"] = True,
             columns: Annotated[list[str], "columns"] = [], **kafka): ...
'''


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of ready pipelines with one in it, and an empty state folder."""
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    for module in (project, run_verb):
        monkeypatch.setattr(module, "READY_FOLDER", tmp_path)
    (tmp_path / "copy_all.py").write_text(READY)
    return tmp_path


def test_progress_in_words() -> None:
    assert progress_text(LINE) == (
        "words: batch 7 · 1,200 rows · 3,457 rows/s · took 350ms · lag 12 rows"
        " · state 1,000 rows, 2.0 KiB"
    )
    bare = {**LINE, "rows": 1, "lag_rows": None, "state_rows": 0, "batch_ms": None}
    assert progress_text(bare) == ("words: batch 7 · 1 row · 3,457 rows/s · took 0ms · lag unknown")


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with view_for(Format.JSON, "p") as shown:
        shown.note("started", "runs", version="4")
        shown.working(WORK)
        shown.progress(LINE)
        shown.output("printed by the pipeline")
    said = capsys.readouterr()
    first, work, second = map(json.loads, said.out.splitlines())
    assert work == {"event": "working", "pipeline": "p", **WORK}
    assert first == {"event": "started", "pipeline": "p", "text": "runs", "version": "4"}
    assert second == {"event": "progress", "pipeline": "p", **LINE}
    assert said.err == "printed by the pipeline\n"


def test_plain_lines_are_few(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with view_for(Format.TEXT, "p") as shown:
        shown.working(WORK)
        shown.working(WORK)
        shown.progress(LINE)
        shown.working(WORK)
        shown.progress({**LINE, "batch": 8})
        shown.progress({**LINE, "query": "other"})
        monkeypatch.setattr(view, "LINE_S", 0.0)
        shown.progress({**LINE, "batch": 9})
        shown.output("printed")
        shown.note("failed", "no topic")
    said = capsys.readouterr()
    assert said.out == "printed\n"
    lines = [line.partition(" ·")[0] for line in said.err.splitlines()]
    assert said.err.startswith("p: at work · 3 of 8 tasks done · for 4.0s\n")
    assert lines[1:] == ["words: batch 7", "other: batch 7", "words: batch 9", "error: p: no topic"]


def test_a_line_per_query_is_drawn_anew_on_a_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    with Live(console=console, auto_refresh=False) as live:
        shown = LiveView("p", live)
        shown.note("started", "runs on Spark")
        shown.working(WORK)
        shown.progress(LINE)
        shown.progress({**LINE, "batch": 8})
        shown.progress({**LINE, "query": "other"})
    drawn = screen.getvalue()
    assert "p: runs on Spark" in drawn
    first, second = drawn.index("words: batch 7"), drawn.index("words: batch 8")
    assert "at work" in drawn[:first]
    assert "at work" not in drawn[second:]
    assert "\r\x1b[2K" in drawn[first:second], "the line was erased"
    last = drawn[drawn.rindex("words: batch 8") :]
    assert "other: batch 7" in last


def test_options_come_from_the_signature(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "copy-all", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for text in (
        "Copies a topic. Options:",
        "--topic TEXT Topic to read. [required]",
        "--checkpoint TEXT Folder of progress; else in the state folder",
        "--rows-max INT At most. [default: 5]",
        "--deep / --no-deep Look deep",
        "--columns A,B,... Columns",
        "--name NAME Name of this run",
    ):
        assert text in said
    assert run(["pipeline", "copy-all", "--rows-max", "3"]) == EXIT_USAGE
    assert "setting topic is missing (topic to read)" in capsys.readouterr().err
    assert run(["pipeline", "copy-all", "--topic", "t", "--rows-max", "few"]) == EXIT_USAGE
    assert "setting rows-max must be a whole number, not 'few'" in capsys.readouterr().err
    assert run(["pipeline", "copy-al"]) == EXIT_USAGE
    assert "did you mean copy-all" in capsys.readouterr().err
    on_a_cluster = ["pipeline", "copy-all", "--topic", "t", "--master", "spark://h:7077"]
    assert run(on_a_cluster) == EXIT_USAGE
    assert "setting checkpoint is missing" in capsys.readouterr().err


def test_a_ready_pipeline_is_named_after_its_topic(ready: Path) -> None:
    found = find("copy-all")
    assert default_name(found, {"topic": "a,b"}) == "copy-all-a-b"
    assert default_name(found, {}) == "copy-all"
    assert ready_command("copy-all", found.file).__doc__ == "Copies a topic."


def test_runs_of_this_machine(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder("words")
    dead = Run("words", os.getpid(), "p.py", "local[2]", 0, status=state.RUNNING, restarts=2)
    with folder.held():
        folder.write_run(dead)
        folder.write_progress({"words": LINE})
        assert run(["pipeline", "list"]) == 0
        row = capsys.readouterr().out.splitlines()[1].split()
        assert row[:3] == ["words", "running", str(os.getpid())]
        assert row[4:] == ["2", "3,457", "12", "local[2]"]
    assert run(["pipeline", "list"]) == 0
    assert "words  crashed  -" in capsys.readouterr().out
    assert run(["pipeline", "stop", "words"]) == 1
    assert capsys.readouterr().err == (
        "error: pipeline words does not run: it has crashed: it ended without a word\n"
    )
    assert run(["pipeline", "status", "word"]) == 1
    assert "no pipeline word has run on this machine (did you mean words?)" in (
        capsys.readouterr().err
    )
    assert run(["pipeline", "status", "words"]) == 0
    said = capsys.readouterr().out
    assert "status    crashed" in said
    assert "progress  words: batch 7" in said


def test_settings_of_the_client_by_every_way(
    ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nclient.id=file\n")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(file))
    monkeypatch.setenv("PENSTOCK_X_SASL_PASSWORD", "environment")
    written = {"kafka.sasl.jaas.config": "x", "kafka.socket.timeout.ms": "1", "topic": "written"}
    there = replace(find("copy-all"), settings=written)
    options = RunOptions(
        bootstrap="h:1",
        settings=["topic=typed", "kafka.client.id=set"],
        xs=["sasl.username=ann", "request.timeout.ms=2"],
    )
    assert run_verb.settings_of(there, options) == {
        "topic": "typed",
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "ann",
        "kafka.sasl.password": "environment",
        "kafka.client.id": "set",
        "kafka.request.timeout.ms": "2",
    }


def test_a_profile_is_for_pipelines_too(
    ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles = Profiles.of(os.environ)
    assert profiles is not None
    profiles.write("prod", {"bootstrap.servers": "h:1", "client.id": "prod"})
    wanted = {"kafka.bootstrap.servers": "h:1", "kafka.client.id": "prod"}
    assert run_verb.settings_of(find("copy-all"), RunOptions(profile="prod")) == wanted
    profiles.use("prod")
    assert run_verb.settings_of(find("copy-all"), RunOptions()) == wanted
    (ready / "bare.py").write_text("def pipeline(spark): ...\n")
    assert run_verb.settings_of(find("bare"), RunOptions()) == {
        "kafka.bootstrap.servers": "localhost:9092"
    }


def test_the_environment_is_not_for_a_pipeline_without_kafka(
    ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_X_CLIENT_ID", "environment")
    (ready / "bare.py").write_text("def pipeline(spark): ...\n")
    assert run_verb.settings_of(find("bare"), RunOptions()) == {
        "kafka.bootstrap.servers": "localhost:9092"
    }


def test_a_misspelt_setting_of_the_client(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["pipeline", "copy-all", "--topic", "t", "-X", "sasl.pasword=secret"]
    assert run(typed) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "-X: unknown setting sasl.pasword (did you mean sasl.password?)" in said
    assert "secret" not in said
