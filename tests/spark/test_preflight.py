"""What cannot work is said before Spark is started: topics, rights, formats, times and tables.

The commands run in this process. Spark is no part of it: a supervisor that is reached fails a test
that expects a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import run as run_command
from penstock.cli.errors import EXIT_USAGE
from penstock.cli.pipeline import run as run_verb
from penstock.spark.lake.table import open_table
from support.helpers import TopicMaker, admin
from support.lake import batch_of, commit_batch, rows_of
from support.process import BrokerProcess

Refused = Callable[..., tuple[int, str]]


class Reached(Exception):
    """All checks are passed; the job is what a child would be told."""

    def __init__(self, job: Any) -> None:
        self.job = job


@pytest.fixture
def pipeline(
    node: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """Runs `penstock pipeline ...` up to the start of Spark."""
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.bootstrap)
    monkeypatch.chdir(tmp_path)

    def reached(job: Any, *_: object) -> None:
        raise Reached(job)

    monkeypatch.setattr(run_verb, "Supervisor", reached)
    return lambda *words: run_command(["pipeline", *words])


@pytest.fixture
def refused(pipeline: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Refused:
    def refused(*words: str) -> tuple[int, str]:
        code = pipeline(*words)
        return code, capsys.readouterr().err

    return refused


@pytest.fixture
def settings(pipeline: Callable[..., int]) -> Callable[..., dict[str, str]]:
    """The settings that the child would get."""

    def settings(*words: str) -> dict[str, str]:
        with pytest.raises(Reached) as found:
            pipeline(*words)
        given: dict[str, str] = found.value.job.settings
        return given

    return settings


def test_topics_that_are_not_there(refused: Refused, topic: TopicMaker) -> None:
    there = topic()
    code, said = refused("archive", "--topic", f"{there},nope", "--to", "lake")
    assert code == 1
    assert "setting topic: topic nope does not exist on" in said
    assert "make it with `penstock topic create nope`" in said
    code, said = refused("dedupe", "--topic", there, "--to", "nowhere")
    assert code == 1
    assert "setting to: topic nowhere does not exist on" in said
    assert "give --create to make it" in said


def test_missing_targets_are_made(
    settings: Callable[..., dict[str, str]], node: BrokerProcess, topic: TopicMaker, capsys: Any
) -> None:
    source = topic(partitions=3)
    words = ("--topic", source, "--to", f"{source}-good", "--dead", f"{source}-dead")
    settings("route-errors", *words, "--create")
    found = admin(node).list_topics().topics
    assert [len(found[f"{source}-{end}"].partitions) for end in ("good", "dead")] == [3, 3]
    assert f"made topic {source}-good with 3 partitions" in capsys.readouterr().err
    settings("route-errors", *words, "--create")
    assert "made" not in capsys.readouterr().err


def test_formats_schemas_times_and_choices(refused: Refused, topic: TopicMaker) -> None:
    source, target = topic(), topic()
    copy = ("--topic", source, "--to", target)
    for words, sentence in (
        (("dedupe", *copy, "--value-format", "xml"), "value-format: format 'xml' is unknown"),
        (("dedupe", *copy, "--value-format", "avro"), "value-format: format avro needs a schema"),
        (("dedupe", *copy, "--start", "middle"), "start must be earliest or latest, not 'middle'"),
        (
            ("dedupe", *copy, "--value-format", "avro", "--value-schema", "@nope.avsc"),
            "value-format: the schema @nope.avsc cannot be read",
        ),
        (
            ("archive", *copy, "--value-format", "json"),
            "value-format: format json needs a schema",
        ),
        (
            ("audit", "--topic", source, "--copy", target, "--since", "yesterday"),
            "since must be a time as",
        ),
        (
            ("join", *copy, "--on", "true", "--table", "no-such-folder"),
            "setting table: there is no folder",
        ),
    ):
        code, said = refused(*words)
        assert code == EXIT_USAGE, words
        assert sentence in said


def test_brokers_that_do_not_answer(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.pipeline.preflight.ASK_S_MAX", 0.2)
    code, said = refused("archive", "--topic", "t", "--to", "lake", "-b", "127.0.0.1:1")
    assert code == 1
    assert "no broker answers" in said


def test_tables(refused: Refused, settings: Any, topic: TopicMaker, tmp_path: Path) -> None:
    source, target = topic(), topic()
    times = ("--since", "2026-11-16T05:00", "--until", "2026-11-16T06:00")
    code, said = refused("replay", "--archive", "lake", "--to", target, *times)
    assert code == EXIT_USAGE
    assert "there is no table in lake" in said
    table = open_table(str(tmp_path / "lake"), "delta")
    rows = [(rows_of("t", partition, [0, 1], 5), 5) for partition in range(2)]
    commit_batch(table, "q", 0, batch_of(table, *rows))
    code, said = refused("replay", "--archive", "lake", "--to", target, *times)
    assert code == EXIT_USAGE
    assert f"topic {target} has 1 partitions, the archive's records are of 2" in said
    settings("replay", "--archive", "lake", "--to", target, *times, "--no-keep-partitions")
    code, said = refused("archive", "--topic", source, "--to", "lake")
    assert code == EXIT_USAGE
    assert "has the format delta, not parquet" in said
    (tmp_path / "file").write_text("")
    code, said = refused("archive", "--topic", source, "--to", "file/lake")
    assert code == EXIT_USAGE
    assert f"{tmp_path / 'file'} is no folder that this user may write to" in said


def test_a_checkpoint_goes_by_folder_and_cluster(
    settings: Callable[..., dict[str, str]],
    topic: TopicMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = topic()
    found = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(settings("archive", "--topic", source, "--to", "lake")["checkpoint"])
    assert found[0] != found[1]
    absolute = ("--to", str(tmp_path / "another" / "lake"))
    assert settings("archive", "--topic", source, *absolute)["checkpoint"] == found[1]
    assert json.dumps(found).count(str(tmp_path / "state")) == 2
