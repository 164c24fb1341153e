"""A pipeline on a Spark cluster: a standalone master and a worker, processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from penstock.spark.session import java_home, launchable
from support.helpers import TopicMaker, produce_all, producer
from support.pipelines import Pipelines
from support.process import BrokerProcess
from support.reference import JVM_OPTIONS
from support.spark_sink import committed
from support.waiting import eventually

START_SECONDS_MAX = 120.0
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def daemon(folder: Path, name: str, *words: str) -> Iterator[Path]:
    """A process of a standalone cluster; yields its log."""
    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment = os.environ | {
        "JAVA_HOME": str(launchable(java_home())),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": " ".join(JVM_OPTIONS),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process,
    ):
        try:
            yield log
        finally:
            process.kill()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with one worker that has two cores."""
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with daemon(tmp_path, "master.Master", *ports) as log:
        found = eventually(lambda: _URL.search(log.read_text()), START_SECONDS_MAX)
        size = ("--cores", "2", "--memory", "1g", *ports, found[1])
        with daemon(tmp_path, "worker.Worker", *size) as log:
            registered = "Successfully registered with master"
            eventually(lambda: registered in log.read_text(), START_SECONDS_MAX)
            yield found[1]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_project_runs_on_a_standalone_cluster(
    master: str, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(partitions=2), topic(partitions=2)
    sentences = [{"value": f"number {n}", "partition": n % 2} for n in range(20)]
    produce_all(producer(node), source, sentences)
    pipelines = Pipelines(tmp_path, node)
    assert pipelines.command("new", "words").returncode == 0
    given = {"topic": source, "to": target, "once": "true", "checkpoint": str(tmp_path / "done")}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1")
    done = pipelines.command("run", "words", "--master", master, *words, *conf)
    assert done.returncode == 0, done.stderr + pipelines.log("words")
    written = [(m.key() or b"", m.value() or b"") for m in committed(node, target)]
    wanted = [(w, b"number %d" % n) for n in range(20) for w in (b"number", b"%d" % n)]
    assert sorted(written) == sorted(wanted)
