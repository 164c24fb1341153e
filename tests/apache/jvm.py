"""Runs classes of Apache Kafka's integration tests in a JVM, against one of two targets.

`penstock`: our class `RaftClusterInvocationContext` stands before Kafka's jars on the class path
and starts nodes as processes. `kafka`: it does not, and the tests start their own cluster in the
JVM. The Java sources are compiled once. A JVM is ended with its nodes when it
takes too long.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "apache" / "java"
LIBS = ROOT / "build" / "kafka-test-libs"
BUILD = ROOT / "build" / "apache"
PENSTOCK, KAFKA = "penstock", "kafka"
CLASS_SECONDS_MAX = 2400
COMPILE_SECONDS_MAX = 300
ENDING_SECONDS = 20
ERROR_CHARACTERS = 400

_TEST_JARS = ("kafka-clients-integration-tests-*-test.jar", "kafka_2.13-*-test.jar")
_ANNOTATIONS = tuple(
    f"Lorg/apache/kafka/common/test/api/{name};".encode()
    for name in ("ClusterTest", "ClusterTests", "ClusterTemplate")
)
_METHOD = re.compile(r"^\w+")
_UNIQUE_ID = re.compile(r"^unique-id: (.*?)(?:/\[test-template-invocation:#\d+\])?$", re.MULTILINE)
# Most tests wait for something: a JVM that compiles little is soonest ready.
_JVM = ("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True)
class Outcome:
    """One test as it was run once."""

    test: str
    """The class and the method, with a dot between."""
    passed: bool
    seconds: float
    error: str
    unique_id: str
    """The method as JUnit names it, for another run of it alone."""


def missing() -> str | None:
    """Why the tests cannot be run here; None if they can."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            return f"no `{tool}` on the PATH: run `python tools/fetch_java.py`"
    if not (LIBS / "pom.xml").exists():
        return f"no jars of Apache Kafka's tests in {LIBS}: run `python tools/fetch_java.py`"
    return None


def annotated_classes() -> list[str]:
    """The classes of the jars that take their cluster from the annotations."""
    found = []
    for pattern in _TEST_JARS:
        for jar in sorted(LIBS.glob(pattern)):
            with zipfile.ZipFile(jar) as entries:
                for name in entries.namelist():
                    if name.endswith(".class") and "$" not in name:
                        code = entries.read(name)
                        if any(annotation in code for annotation in _ANNOTATIONS):
                            found.append(name.removesuffix(".class").replace("/", "."))
    return sorted(found)


def compiled_classes() -> Path:
    """The folder of our compiled classes, for these very sources and jars."""
    sources = sorted(SOURCES.rglob("*.java"))
    texts = hashlib.sha256((LIBS / "pom.xml").read_bytes())
    for path in sources:
        texts.update(path.read_bytes())
    classes = BUILD / f"classes-{texts.hexdigest()[:12]}"
    if classes.exists():
        return classes
    BUILD.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="compiling-", dir=BUILD))
    argv = ["javac", "-nowarn", "-d", str(made), "-cp", f"{LIBS}/*", *map(str, sources)]
    ran = subprocess.run(
        argv, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(f"javac could not compile {SOURCES}:\n{ran.stderr}")
    # Another process may have been sooner: then its folder is as good as ours.
    with contextlib.suppress(OSError):
        made.rename(classes)
    shutil.rmtree(made, ignore_errors=True)
    return classes


def run(target: str, selected: Sequence[str], reports: Path) -> list[Outcome]:
    """Runs classes, or methods by unique id, in one JVM; `reports` keeps what it wrote."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    with (reports / "output.txt").open("w") as output:
        process = subprocess.Popen(
            _command(target, selected, reports),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            process.wait(timeout=CLASS_SECONDS_MAX * len(selected))
        finally:
            _end_session(process)
    written = reports / "TEST-junit-jupiter.xml"
    if not written.exists():
        raise RuntimeError(f"the JVM wrote no report; its output is in {reports / 'output.txt'}")
    return list(parse(written))


def parse(report: Path) -> Iterable[Outcome]:
    """The tests in a report of JUnit's; those that were skipped are left out."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        method = _METHOD.match(case.get("name", ""))
        bad = case.find("failure")
        bad = case.find("error") if bad is None else bad
        yield Outcome(
            f"{case.get('classname')}.{method.group() if method else '?'}",
            bad is None,
            float(case.get("time", "0").replace(",", "")),
            "" if bad is None else _error(bad),
            _unique_id(case),
        )


def _unique_id(case: ElementTree.Element) -> str:
    for output in case.iter("system-out"):
        if found := _UNIQUE_ID.search(output.text or ""):
            return found[1]
    raise ValueError(f"the report does not say what {case.get('name')} is")


def _error(bad: ElementTree.Element) -> str:
    kind = (bad.get("type") or "").rpartition(".")[2]
    said = " ".join((bad.get("message") or bad.text or "").split())
    return f"{kind}: {said}"[:ERROR_CHARACTERS]


def _command(target: str, selected: Sequence[str], reports: Path) -> list[str]:
    path = [str(compiled_classes())] if target == PENSTOCK else []
    path.append(f"{LIBS}/*")
    properties = [
        "-Djunit.jupiter.extensions.autodetection.enabled=true",
        f"-Dpenstock.python={sys.executable}",
    ]
    argv = ["java", *_JVM, *properties, "-cp", os.pathsep.join(path)]
    argv += ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
    argv += ["--disable-ansi-colors", "--details=none", f"--reports-dir={reports}"]
    for name in selected:
        argv += ["--select-unique-id" if name.startswith("[") else "--select-class", name]
    return argv


def _environment() -> dict[str, str]:
    # Without bytecode on disk each node compiles all that it imports, which is half of its start.
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the JVM and, since it may have been stopped in the middle of a test, its nodes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait(ENDING_SECONDS)
