"""`penstock pipeline` with a real node and a real Spark: made, run, killed, restarted, stopped.

Every start of Spark takes seconds, so that each test asks many things of one.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock.cli.errors import EXIT_USAGE
from support.helpers import TopicMaker, produce_all, producer
from support.pipelines import SPARK, Pipelines
from support.process import BrokerProcess
from support.spark_sink import committed


@pytest.fixture
def pipelines(node: BrokerProcess, tmp_path: Path) -> Pipelines:
    return Pipelines(tmp_path, node)


def say(node: BrokerProcess, topic: str, numbers: range) -> None:
    messages = [{"value": f"number {n}", "partition": n % 2} for n in numbers]
    produce_all(producer(node), topic, messages)


def words(node: BrokerProcess, topic: str) -> Counter[tuple[bytes, bytes]]:
    return Counter((m.key() or b"", m.value() or b"") for m in committed(node, topic))


def words_of(numbers: range) -> Counter[tuple[bytes, bytes]]:
    pairs = [(word, b"number %d" % n) for n in numbers for word in (b"number", b"%d" % n)]
    return Counter(pairs)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_new_project_is_run_killed_restarted_and_stopped(
    pipelines: Pipelines, node: BrokerProcess, topic: TopicMaker
) -> None:
    source, target = topic(partitions=2), topic(partitions=2)
    made = pipelines.command("new", "counting")
    assert made.returncode == 0, made.stderr
    say(node, source, range(50))
    names = ("--set", f"topic={source}", "--set", f"to={target}")
    with pipelines.start("run", "counting", *names, *SPARK) as run:
        assert run.wait_for("starting")["master"] == "local[2]", "life before Spark is there"
        progress = run.wait_for("progress")
        assert (progress["pipeline"], progress["query"]) == ("counting", "words")
        assert progress["lag_rows"] == 0
        assert progress["batch_ms"] > 0

        listed = pipelines.json("list")
        assert [(r["name"], r["status"], r["restarts"]) for r in listed] == [
            ("counting", "running", 0)
        ]
        assert listed[0]["pid"] == run.process.pid
        second = pipelines.command("run", "counting", *names)
        assert second.returncode == 1
        assert f"pipeline counting runs already (process {run.process.pid})" in second.stderr

        java = run.wait_for("started")["java_pid"]
        say(node, source, range(50, 100))
        os.kill(java, signal.SIGKILL)
        assert "Java" in run.wait_for("restart")["error"]
        run.wait_for("started", count=2)
        say(node, source, range(100, 150))
        while sum(p["rows"] for p in run.of("progress")) < 150:
            run.wait_for("progress", count=len(run.of("progress")) + 1)

        status = pipelines.command("status", "counting")
        assert status.returncode == 0
        for text in ("running", "restarts    1", "words: batch", "lag 0 rows", "last error  the J"):
            assert text in status.stdout, status.stdout
        stopped = pipelines.command("stop", "counting")
        assert stopped.stdout == "pipeline counting is stopped\n", stopped.stderr
        assert run.wait() == 0
        assert run.events[-1]["event"] == "stopped"
    assert words(node, target) == words_of(range(150))
    assert pipelines.json("status", "counting")["status"] == "stopped"
    again = pipelines.command("stop", "counting")
    assert again.returncode == 1
    assert "pipeline counting does not run: it is stopped" in again.stderr


BATCH = '''
"""Counts a topic."""
from typing import Annotated

def pipeline(spark, *, topic: Annotated[str, "topic to read"], **kafka):
    rows = spark.read.format("penstock").options(**kafka).option("subscribe", topic).load()
    print("there are", rows.count(), "rows")
    return 3
'''


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_batch_work_prints_and_has_its_own_exit_code(
    pipelines: Pipelines, node: BrokerProcess, topic: TopicMaker
) -> None:
    source = topic(partitions=2)
    say(node, source, range(7))
    (pipelines.folder / "count.py").write_text(BATCH)
    wrong = pipelines.command("run", "count.py", "--set", "topics=x")
    assert wrong.returncode == EXIT_USAGE
    assert "there is no setting topics (did you mean topic?)" in wrong.stderr
    done = pipelines.command("run", "count.py", "--set", f"topic={source}", *SPARK)
    assert done.returncode == 3, done.stderr + pipelines.log("count")
    assert done.stdout == "there are 7 rows\n"
    assert pipelines.json("list")[0]["status"] == "done"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_cannot_work_is_not_tried_again(pipelines: Pipelines) -> None:
    (pipelines.folder / "counting.py").write_text(BATCH)
    names = ("--set", "topic=no-such-topic")
    with pipelines.start("run", "counting.py", *names, *SPARK) as run:
        assert run.wait() == 1
        last = run.events[-1]
    assert last["event"] == "failed"
    assert "topic no-such-topic (subscribe no-such-topic) does not exist" in last["error"]
    assert "Traceback" in Path(last["log"]).read_text()
    status = pipelines.json("status", "counting")
    assert (status["status"], status["exit_code"]) == ("failed", 1)
    assert status["last_error"] == last["error"]
