"""Fetches jars with Maven into `build`, for the tests that need Java: Apache Kafka, its own
integration tests, Spark's own Kafka connector, and Iceberg's REST catalog.

Run `python tools/fetch_java.py`. It says what it does. When Java or Maven is missing and this is a
Debian-like machine on which we are root, it installs them; otherwise it says why the Java tests
will be skipped. A machine without Java is no failure of the build, so the exit code is 0 either
way; `--strict` makes it 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"java": "default-jdk-headless", "javac": "default-jdk-headless", "mvn": "maven"}
INSTALL_SECONDS_MAX = 600
FETCH_SECONDS_MAX = 600
ERROR_LINES_SHOWN = 5


class Jars(NamedTuple):
    """What a pom names, and where it is copied to."""

    what: str
    pom: Path
    libs: Path

    def are_current(self) -> bool:
        """Whether the jars are there and were fetched for this very pom."""
        stamp = self.libs / "pom.xml"
        return stamp.exists() and stamp.read_bytes() == self.pom.read_bytes()


WANTED = (
    Jars(
        "Apache Kafka",
        ROOT / "tests" / "interop" / "java" / "pom.xml",
        ROOT / "build" / "kafka-libs",
    ),
    Jars(
        "Apache Kafka's own integration tests",
        ROOT / "tests" / "apache" / "java" / "pom.xml",
        ROOT / "build" / "kafka-test-libs",
    ),
    Jars(
        "Spark's Kafka connector",
        ROOT / "tests" / "spark" / "java" / "pom.xml",
        ROOT / "build" / "spark-kafka-libs",
    ),
    Jars(
        "Iceberg's REST catalog",
        ROOT / "tests" / "spark" / "catalog" / "pom.xml",
        ROOT / "build" / "iceberg-catalog-libs",
    ),
)


def say(text: str) -> None:
    """One line of progress, at once."""
    sys.stdout.write(f"fetch_java: {text}\n")
    sys.stdout.flush()


def run(argv: list[str], seconds: int) -> str | None:
    """Runs a command quietly; the end of its output when it fails, None when it works."""
    say("running " + " ".join(argv))
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            env=environment,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {seconds} s"
    if done.returncode == 0:
        return None
    return " | ".join(done.stdout.strip().splitlines()[-ERROR_LINES_SHOWN:])


def install_tools() -> str | None:
    """Installs what is missing of Java and Maven; the reason when that cannot be done."""
    missing = [tool for tool in PACKAGES if shutil.which(tool) is None]
    if not missing:
        return None
    names = ", ".join(missing)
    if shutil.which("apt-get") is None:
        return f"{names} not found, and there is no apt-get to install it with"
    if os.geteuid() != 0:
        return f"{names} not found, and only root can install it with apt-get"
    packages = sorted({PACKAGES[tool] for tool in missing})
    for argv in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        error = run(argv, INSTALL_SECONDS_MAX)
        if error is not None:
            return f"apt-get could not install {' '.join(packages)}: {error}"
    return None


def fetch(jars: Jars) -> str | None:
    """Copies the jars that the pom names, and what they need; the reason when it fails."""
    if jars.are_current():
        say(f"{jars.libs} is up to date")
        return None
    shutil.rmtree(jars.libs, ignore_errors=True)
    jars.libs.mkdir(parents=True)
    argv = ["mvn", "-q", "-B", "-f", str(jars.pom), "dependency:copy-dependencies"]
    error = run([*argv, f"-DoutputDirectory={jars.libs}"], FETCH_SECONDS_MAX)
    if error is not None:
        return f"Maven could not fetch the jars: {error}"
    shutil.copyfile(jars.pom, jars.libs / "pom.xml")
    say(f"{len(list(jars.libs.glob('*.jar')))} jars in {jars.libs}")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--strict", action="store_true", help="fail when the jars cannot be fetched"
    )
    strict = parser.parse_args().strict
    missing = [jars for jars in WANTED if not jars.are_current()]
    no_tools = install_tools() if missing or shutil.which("java") is None else None
    failed = False
    for jars in WANTED:
        reason = no_tools or fetch(jars)
        if reason is not None:
            say(f"the tests with {jars.what} will be skipped: {reason}")
            failed = True
    return 1 if failed and strict else 0


if __name__ == "__main__":
    raise SystemExit(main())
